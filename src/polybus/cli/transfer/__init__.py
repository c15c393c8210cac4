"""Moving a namespace from one bus to another with the official SDK: its entities, then its messages, to be resumed."""
