//! Where in a request's body two texts part: byte, JSON pointer, message.

/// A place in a JSON text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Located {
    pub pointer: String,
    /// Counts the messages from 0, when it stands in one.
    pub message: Option<u64>,
}

/// Keys under which the wires keep messages.
const MESSAGES: [&str; 3] = ["messages", "input", "contents"];

/// The first byte in which two texts differ; `None` when they are the same.
pub fn first_difference(one: &[u8], other: &[u8]) -> Option<usize> {
    let same = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    (same < one.len().max(other.len())).then_some(same)
}

/// The innermost value around a byte of a JSON text that need not be valid behind that byte. `text` begins inside an
/// object (a body without its front).
pub fn locate(text: &[u8], byte: usize) -> Located {
    let mut path: Vec<Step> = vec![Step::Key(String::new())];
    let (mut at, mut awaits_key) = (0, true);
    while at < text.len() && at <= byte {
        match text[at] {
            b'"' => {
                let end = string_end(text, at);
                if awaits_key && matches!(path.last(), Some(Step::Key(_))) {
                    if let Some(Step::Key(name)) = path.last_mut() {
                        *name = key(&text[at..end.min(text.len())]);
                    }
                    awaits_key = false;
                }
                if end > byte {
                    break;
                }
                at = end;
                continue;
            }
            b'{' => {
                path.push(Step::Key(String::new()));
                awaits_key = true;
            }
            b'[' => path.push(Step::Index(0)),
            b'}' | b']' => {
                path.pop();
                awaits_key = false;
            }
            b',' => match path.last_mut() {
                Some(Step::Index(index)) => *index += 1,
                _ => awaits_key = true,
            },
            _ => {}
        }
        at += 1;
    }
    let message = match path.as_slice() {
        [Step::Key(name), Step::Index(index), ..] if MESSAGES.contains(&name.as_str()) => Some(*index),
        _ => None,
    };
    let pointer = path
        .iter()
        .filter_map(|step| match step {
            Step::Key(name) if name.is_empty() => None,
            Step::Key(name) => Some(format!("/{}", name.replace('~', "~0").replace('/', "~1"))),
            Step::Index(index) => Some(format!("/{index}")),
        })
        .collect();
    Located { pointer, message }
}

enum Step {
    Key(String),
    Index(u64),
}

/// Behind the closing quote of the string that begins at `at`; the text's end when it is not closed.
fn string_end(text: &[u8], at: usize) -> usize {
    let mut index = at + 1;
    while index < text.len() {
        match text[index] {
            b'\\' => index += 2,
            b'"' => return index + 1,
            _ => index += 1,
        }
    }
    text.len().max(index)
}

fn key(quoted: &[u8]) -> String {
    serde_json::from_slice(quoted).unwrap_or_else(|_| String::from_utf8_lossy(quoted).into_owned())
}

/// The value at a pointer of a body without its front, as text; empty when there is none.
pub fn value(rest: &[u8], pointer: &str) -> String {
    let text = [b"{", rest].concat();
    let value: serde_json::Value = match serde_json::from_slice(&text) {
        Ok(value) => value,
        Err(_) => return String::new(),
    };
    match value.pointer(pointer) {
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(value) => serde_json::to_string_pretty(value).unwrap_or_default(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: &str = r#""system":[{"text":"a, \"b\""}],"messages":[{"role":"user","content":"one"},{"role":"tool","content":[{"text":"two {"}]}]}"#;

    fn at(part: &str) -> Located {
        locate(REST.as_bytes(), REST.find(part).expect("it is there") + 1)
    }

    #[test]
    fn values_are_found_by_their_bytes() {
        assert_eq!(at("b\\\"").pointer, "/system/0/text");
        assert_eq!(at("b\\\"").message, None);
        let one = at("one");
        assert_eq!((&*one.pointer, one.message), ("/messages/0/content", Some(0)));
        let two = at("two");
        assert_eq!((&*two.pointer, two.message), ("/messages/1/content/0/text", Some(1)));
        assert_eq!(value(REST.as_bytes(), "/messages/1/content/0/text"), "two {");
    }

    #[test]
    fn texts_part_where_one_ends_too() {
        assert_eq!(first_difference(b"abc", b"abd"), Some(2));
        assert_eq!(first_difference(b"abc", b"ab"), Some(2));
        assert_eq!(first_difference(b"abc", b"abc"), None);
    }
}
