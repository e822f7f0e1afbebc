//! The kernel's keyrings: what is kept there for a user is open to every program of that user.

use super::support::{Cell, assert_lines, has};

const SECRET: &str = "a-key-of-the-users";
/// The keyring of the user, and the call that takes a key out of one.
const OF_THE_USER: libc::c_long = -4;
const UNLINK: libc::c_long = 9;

/// A key in the user's keyring, for as long as this stands.
struct Kept(libc::c_long);

impl Kept {
    /// `None`, and said, where keyrings are closed anyway.
    fn put(name: &str) -> Option<Kept> {
        let name = std::ffi::CString::new(name).expect("a name");
        let (kind, secret) = (c"user".as_ptr(), SECRET.as_ptr());
        // SAFETY: kind and name are null-terminated, and the length is the content's.
        let key = unsafe { libc::syscall(libc::SYS_add_key, kind, name.as_ptr(), secret, SECRET.len(), OF_THE_USER) };
        if key < 0 {
            println!("skipped: no key can be kept here");
        }
        (key >= 0).then_some(Kept(key))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // SAFETY: the call takes numbers alone.
        unsafe { libc::syscall(libc::SYS_keyctl, UNLINK, self.0, OF_THE_USER) };
    }
}

/// Looks for the key, reads it, asks for it, and puts one into a keyring that ends with the process.
fn look(name: &str) -> String {
    format!(
        "cat > $TMPDIR/k.py <<'EOF'
import ctypes
calls = ctypes.CDLL(None, use_errno=True)
def said(what, *arguments):
    found = calls.syscall(*arguments)
    print(what, 'done' if found >= 0 else ctypes.get_errno())
    return found
found = said('search', {keyctl}, 10, -4, b'user', b'{name}', 0)
text = ctypes.create_string_buffer(64)
said('read', {keyctl}, 11, found if found >= 0 else -4, text, 64)
print('holds', text.value.decode() or 'nothing')
said('request', {request}, b'user', b'{name}', None, 0)
said('add', {add}, b'user', b'{name}-more', b'x', 1, -2)
EOF
python3 $TMPDIR/k.py",
        keyctl = libc::SYS_keyctl,
        request = libc::SYS_request_key,
        add = libc::SYS_add_key,
    )
}

#[test]
fn no_key_is_found_read_or_put_there() {
    let name = format!("spettro-test-{}", std::process::id());
    let Some(_kept) = has("python3").then(|| Kept::put(&name)).flatten() else { return };
    // Without a sandbox it is there to be taken: what follows refuses something.
    let open = Cell::new().told("sandbox: {files: off}\n", &look(&name));
    let taken = format!("holds {SECRET}");
    assert_lines(&open, &["search done", "read done", &taken, "request done", "add done"]);
    for goal in ["", "sandbox: {files: off, network: none}\n", "sandbox: {files: read-only}\n"] {
        let told = Cell::new().told(goal, &look(&name));
        assert_lines(&told, &["search 1", "read 1", "holds nothing", "request 1", "add 1"]);
    }
}
