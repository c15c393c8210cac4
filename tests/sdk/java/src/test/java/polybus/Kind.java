package polybus;

/** The two kinds of entity that every behaviour is shown on. */
enum Kind {
    PLAIN, PARTITIONED;

    boolean partitioned() {
        return this == PARTITIONED;
    }
}
