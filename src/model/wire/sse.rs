//! TODO(H1)
