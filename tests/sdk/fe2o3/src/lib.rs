//! Nothing is here: the tests are in `tests`.
