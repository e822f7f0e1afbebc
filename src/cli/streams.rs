//! What verbs write to: data on stdout, talk on stderr.

use std::io::{self, ErrorKind, Write};

/// stdout. A reader that went away has seen enough, which changes nothing about what a verb has to say by its exit
/// code; any other error is one, and says where it happened.
pub struct Data<W> {
    to: W,
    gone: bool,
}

impl<W: Write> Data<W> {
    pub const fn new(to: W) -> Data<W> {
        Data { to, gone: false }
    }

    fn told<T>(&mut self, done: io::Result<T>, instead: T) -> io::Result<T> {
        match done {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.gone = true;
                Ok(instead)
            }
            Err(error) if error.kind() != ErrorKind::Interrupted => {
                Err(io::Error::new(error.kind(), format!("write stdout: {error}")))
            }
            done => done,
        }
    }
}

impl<W: Write> Write for Data<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.gone {
            return Ok(bytes.len());
        }
        let done = self.to.write(bytes);
        self.told(done, bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.gone {
            return Ok(());
        }
        let done = self.to.flush();
        self.told(done, ())
    }
}

/// stderr: when nobody takes it, nothing is missing.
pub struct Talk<W>(pub W);

impl<W: Write> Write for Talk<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(self.0.write(bytes).unwrap_or(bytes.len()))
    }

    fn flush(&mut self) -> io::Result<()> {
        // See above.
        let _lost = self.0.flush();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fails(ErrorKind);

    impl Write for Fails {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Err(self.0.into())
        }
    }

    #[test]
    fn a_reader_that_left_is_no_error_and_a_full_disk_is() {
        let mut left = Data::new(Fails(ErrorKind::BrokenPipe));
        writeln!(left, "x").and_then(|()| left.flush()).expect("no error");
        let mut full = Data::new(Fails(ErrorKind::StorageFull));
        let error = writeln!(full, "x").expect_err("an error");
        assert!(error.to_string().starts_with("write stdout: "), "{error}");
        writeln!(Talk(Fails(ErrorKind::StorageFull)), "x").expect("no error");
    }
}
