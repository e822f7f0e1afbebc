//! Server-sent events, as the WHATWG defines them: LF, CRLF and CR, a byte order mark, comments, multi-line data.
//!
//! Invariant: every byte is looked at once, whatever the chunking; text is never decoded here, so a character may
//! be split anywhere. One leniency: a line of the field `error` (older llama.cpp servers) is data of an event
//! named `error`.

/// Most bytes of one event.
pub(super) const MAX_EVENT_BYTES: usize = 64 << 20;

/// One event. `name` is empty when the stream gave none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Event<'a> {
    pub name: &'a [u8],
    /// The data lines, joined with LF.
    pub data: &'a [u8],
}

/// An event grew past [`MAX_EVENT_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLong;

#[derive(Debug, Default)]
pub(super) struct Parser {
    /// The start of a line whose end has not come yet.
    line: Vec<u8>,
    name: Vec<u8>,
    data: Vec<u8>,
    /// A data line was seen since the last event (so the next one is joined with LF).
    has_data: bool,
    /// The last byte was a CR that ended a line: an LF right after it belongs to it.
    after_cr: bool,
    past_first_line: bool,
}

impl Parser {
    /// Takes the next bytes and hands over every event they complete.
    pub fn push<E: From<TooLong>>(
        &mut self,
        mut chunk: &[u8],
        mut take: impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.after_cr && !chunk.is_empty() {
            self.after_cr = false;
            if chunk[0] == b'\n' {
                chunk = &chunk[1..];
            }
        }
        while let Some(end) = memchr::memchr2(b'\n', b'\r', chunk) {
            let complete = if self.line.is_empty() {
                self.accept(&chunk[..end])
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(&chunk[..end]);
                let complete = self.accept(&line);
                line.clear();
                self.line = line;
                complete
            };
            if self.data.len() > MAX_EVENT_BYTES {
                return Err(TooLong.into());
            }
            if complete {
                let result = take(Event { name: &self.name, data: &self.data });
                self.reset();
                result?;
            }
            let cr = chunk[end] == b'\r';
            chunk = &chunk[end + 1..];
            if cr {
                match chunk.first() {
                    Some(b'\n') => chunk = &chunk[1..],
                    Some(_) => {}
                    None => self.after_cr = true,
                }
            }
        }
        if self.line.len() + chunk.len() > MAX_EVENT_BYTES {
            return Err(TooLong.into());
        }
        self.line.extend_from_slice(chunk);
        Ok(())
    }

    /// The end of the stream: the event whose closing blank line never came, if there is one.
    pub fn leftover(&mut self) -> Option<Event<'_>> {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.accept(&line);
        }
        (!self.data.is_empty()).then_some(Event { name: &self.name, data: &self.data })
    }

    /// Takes one line without its end; true when it completes an event.
    fn accept(&mut self, line: &[u8]) -> bool {
        let line = if self.past_first_line { line } else { line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line) };
        self.past_first_line = true;
        if line.is_empty() {
            let complete = !self.data.is_empty();
            if !complete {
                self.reset();
            }
            return complete;
        }
        let (field, value) = match line.iter().position(|&byte| byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => self.append(value),
            b"event" => {
                self.name.clear();
                self.name.extend_from_slice(value);
            }
            b"error" => {
                self.name.clear();
                self.name.extend_from_slice(b"error");
                self.append(value);
            }
            // Comments (an empty field), `id`, `retry` and what is unknown.
            _ => {}
        }
        false
    }

    fn append(&mut self, value: &[u8]) {
        if self.has_data {
            self.data.push(b'\n');
        }
        self.has_data = true;
        self.data.extend_from_slice(value);
    }

    fn reset(&mut self) {
        self.name.clear();
        self.data.clear();
        self.has_data = false;
    }
}

/// Appends one event; `data` may have line ends.
pub(super) fn write(out: &mut Vec<u8>, name: Option<&str>, data: &str) {
    if let Some(name) = name {
        out.extend_from_slice(format!("event: {name}\n").as_bytes());
    }
    for line in data.split('\n') {
        out.extend_from_slice(format!("data: {line}\n").as_bytes());
    }
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every event of a stream cut into chunks of `size` bytes, the leftover too.
    fn events(stream: &[u8], size: usize) -> Vec<(String, String)> {
        let mut parser = Parser::default();
        let mut seen = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        for chunk in stream.chunks(size) {
            parser
                .push::<TooLong>(chunk, |event| {
                    seen.push((text(event.name), text(event.data)));
                    Ok(())
                })
                .unwrap();
        }
        if let Some(event) = parser.leftover() {
            seen.push((text(event.name), text(event.data)));
        }
        seen
    }

    fn pair(name: &str, data: &str) -> (String, String) {
        (name.into(), data.into())
    }

    #[test]
    fn every_line_ending_ends_a_line_in_every_chunking() {
        let expected = vec![pair("a", "1\n2"), pair("", "3")];
        for stream in [
            "event: a\ndata: 1\ndata: 2\n\ndata: 3\n\n",
            "event: a\r\ndata: 1\r\ndata: 2\r\n\r\ndata: 3\r\n\r\n",
            "event: a\rdata: 1\rdata: 2\r\rdata: 3\r\r",
            "event: a\rdata: 1\r\ndata: 2\n\rdata: 3\n\r\n",
        ] {
            for size in 1..=stream.len() {
                assert_eq!(events(stream.as_bytes(), size), expected, "{stream:?} by {size}");
            }
        }
    }

    #[test]
    fn a_byte_order_mark_is_dropped_at_the_start_only() {
        for size in [1, 2, 3, 100] {
            assert_eq!(events("\u{feff}data: 1\n\n".as_bytes(), size), vec![pair("", "1")]);
            assert_eq!(events("data: 1\n\n\u{feff}data: 2\n\n".as_bytes(), size), vec![pair("", "1")]);
        }
    }

    #[test]
    fn comments_unknown_fields_and_empty_events_bring_nothing() {
        let stream = ": keep-alive\n\n:\n\nid: 7\nretry: 10\n\nevent: ping\n\ndata\n\ndata:\n\nevent: b\ndata: x\n\n";
        for size in [1, 3, 1000] {
            assert_eq!(events(stream.as_bytes(), size), vec![pair("b", "x")]);
        }
    }

    #[test]
    fn one_space_after_the_colon_is_not_data() {
        assert_eq!(events(b"data:x\n\ndata: x\n\ndata:  x\n\n", 4), vec![pair("", "x"), pair("", "x"), pair("", " x")]);
    }

    #[test]
    fn an_empty_first_data_line_still_counts_as_a_line() {
        assert_eq!(events(b"data:\ndata: x\n\n", 5), vec![pair("", "\nx")]);
    }

    #[test]
    fn a_split_character_arrives_whole() {
        let stream = "data: é€😀\n\n".as_bytes();
        for size in 1..stream.len() {
            assert_eq!(events(stream, size), vec![pair("", "é€😀")]);
        }
    }

    #[test]
    fn what_is_left_at_the_end_is_an_event_too() {
        assert_eq!(events(b"data: 1\n\nevent: z\ndata: 2", 2), vec![pair("", "1"), pair("z", "2")]);
        assert_eq!(events(b"data: 1\n\nevent: z\n", 2), vec![pair("", "1")]);
    }

    #[test]
    fn an_error_line_is_an_error_event() {
        assert_eq!(events(b"error: {\"code\":500}\n\n", 3), vec![pair("error", "{\"code\":500}")]);
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut parser = Parser::default();
        let chunk = vec![b'x'; 1 << 20];
        let mut pushed = 0;
        let refused = loop {
            if let Err(error) = parser.push::<TooLong>(&chunk, |_| Ok(())) {
                break error;
            }
            pushed += 1;
            assert!(pushed <= 64, "a line of more than 64 MiB was taken");
        };
        assert_eq!(refused, TooLong);
    }
}
