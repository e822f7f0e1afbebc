//! HTML as text that a model can read: headings, lists, links and preformatted text stay what they are, and what is
//! no text of the page goes. Pure, in one pass; every input is some page.

/// Elements whose content is no text of the page.
const UNSEEN: [&str; 7] = ["script", "style", "template", "svg", "iframe", "object", "select"];
/// Deeper nesting of them is not counted: every page is read in time that grows with its length.
const MOST_UNSEEN: usize = 64;
/// Their content is text up to their own end, tags and all.
const RAW: [&str; 4] = ["script", "style", "textarea", "title"];
/// Elements that stand on lines of their own.
const BLOCKS: [&str; 29] = [
    "address",
    "article",
    "aside",
    "blockquote",
    "body",
    "dd",
    "details",
    "div",
    "dl",
    "dt",
    "figcaption",
    "figure",
    "footer",
    "form",
    "header",
    "html",
    "li",
    "main",
    "nav",
    "ol",
    "p",
    "section",
    "summary",
    "table",
    "tbody",
    "thead",
    "tr",
    "ul",
    "pre",
];

/// The text of a page, without empty lines at its ends and with at most one in a row.
pub(super) fn text(html: &str) -> String {
    let mut page = Page::default();
    let mut rest = html;
    while !rest.is_empty() {
        let Some(at) = rest.find('<') else {
            page.words(rest);
            break;
        };
        page.words(&rest[..at]);
        rest = &rest[at..];
        if let Some(comment) = rest.strip_prefix("<!--") {
            rest = comment.find("-->").map_or("", |end| &comment[end + 3..]);
        } else if rest.starts_with("<!") || rest.starts_with("<?") {
            rest = rest.find('>').map_or("", |end| &rest[end + 1..]);
        } else if let Some((tag, behind)) = Tag::read(rest) {
            rest = behind;
            page.tag(&tag);
            if !tag.closes && RAW.contains(&tag.name.as_str()) {
                let end = end_of(rest, &tag.name);
                if tag.name == "title" && page.out.is_empty() {
                    page.words(&rest[..end]);
                    page.due = 2;
                } else if tag.name == "textarea" {
                    page.words(&rest[..end]);
                }
                rest = &rest[end..];
            }
        } else {
            // No tag: a character like others.
            page.words("<");
            rest = &rest[1..];
        }
    }
    page.done()
}

/// Where `</name` begins, in any case.
fn end_of(text: &str, name: &str) -> usize {
    let mut from = 0;
    while let Some(at) = text[from..].find("</") {
        let behind = &text.as_bytes()[from + at + 2..];
        if behind.len() >= name.len() && behind[..name.len()].eq_ignore_ascii_case(name.as_bytes()) {
            return from + at;
        }
        from += at + 2;
    }
    text.len()
}

struct Tag {
    /// In lower case.
    name: String,
    closes: bool,
    /// Ends itself, as `<br/>`.
    empty: bool,
    href: Option<String>,
    alt: Option<String>,
}

impl Tag {
    /// The tag at the start of `text`, and what is behind it. `None`: it is none.
    fn read(text: &str) -> Option<(Tag, &str)> {
        let inner = text.strip_prefix('<')?;
        let (closes, inner) = inner.strip_prefix('/').map_or((false, inner), |inner| (true, inner));
        if !inner.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return None;
        }
        let end = inner.find(|c: char| c.is_whitespace() || c == '>' || c == '/').unwrap_or(inner.len());
        let mut tag = Tag { name: inner[..end].to_ascii_lowercase(), closes, empty: false, href: None, alt: None };
        let mut rest = &inner[end..];
        loop {
            rest = rest.trim_start();
            let Some(first) = rest.chars().next() else { return Some((tag, "")) };
            match first {
                '>' => return Some((tag, &rest[1..])),
                '/' => {
                    tag.empty = rest[1..].starts_with('>');
                    rest = &rest[1..];
                }
                _ => {
                    let start = first.len_utf8();
                    let stop = |c: char| c.is_whitespace() || matches!(c, '=' | '>' | '/');
                    let end = rest[start..].find(stop).map_or(rest.len(), |end| start + end);
                    let name = rest[..end].to_ascii_lowercase();
                    rest = rest[end..].trim_start();
                    if let Some(value) = rest.strip_prefix('=') {
                        let (value, behind) = value_of(value.trim_start());
                        rest = behind;
                        match name.as_str() {
                            "href" => tag.href = Some(decoded(value)),
                            "alt" => tag.alt = Some(decoded(value)),
                            _ => {}
                        }
                    }
                }
            }
        }
    }
}

/// An attribute's value, and what is behind it.
fn value_of(text: &str) -> (&str, &str) {
    for quote in ['"', '\''] {
        if let Some(inner) = text.strip_prefix(quote) {
            return inner.split_once(quote).unwrap_or((inner, ""));
        }
    }
    let end = text.find(|c: char| c.is_whitespace() || c == '>').unwrap_or(text.len());
    text.split_at(end)
}

#[derive(Default)]
struct Page {
    out: String,
    /// Line ends that are due before the next word: none, one, or two for a paragraph.
    due: usize,
    /// A space is due.
    space: bool,
    /// Names of open elements whose content is not shown.
    unseen: Vec<String>,
    /// How many `pre` are open.
    pre: usize,
    /// How many lists are open.
    lists: usize,
    /// Where the open link leads, and where its words begin.
    link: Option<(String, usize)>,
    /// A mark has just been written, and what it is for comes on the same line.
    marked: bool,
}

impl Page {
    fn words(&mut self, text: &str) {
        if !self.unseen.is_empty() || text.is_empty() {
            return;
        }
        let text = decoded(text);
        if self.pre > 0 {
            self.break_lines();
            self.marked = false;
            self.out.push_str(&text.replace("\r\n", "\n"));
            return;
        }
        for c in text.chars() {
            if c.is_whitespace() {
                self.space = true;
            } else {
                self.begin();
                self.marked = false;
                self.out.push(c);
            }
        }
    }

    /// The line ends and the space that are due before what comes.
    fn begin(&mut self) {
        self.break_lines();
        if std::mem::take(&mut self.space) && !self.out.is_empty() && !self.out.ends_with(['\n', ' ']) {
            self.out.push(' ');
        }
    }

    fn break_lines(&mut self) {
        let due = std::mem::take(&mut self.due);
        if due == 0 || self.out.is_empty() || self.marked {
            return;
        }
        self.space = false;
        let there = self.out.bytes().rev().take(due).take_while(|byte| *byte == b'\n').count();
        self.out.extend(std::iter::repeat_n('\n', due.saturating_sub(there)));
    }

    fn tag(&mut self, tag: &Tag) {
        let name = tag.name.as_str();
        if UNSEEN.contains(&name) {
            if !tag.closes && !tag.empty && self.unseen.len() < MOST_UNSEEN {
                self.unseen.push(name.to_owned());
            } else if tag.closes
                && let Some(at) = self.unseen.iter().rposition(|open| open == name)
            {
                self.unseen.truncate(at);
            }
        }
        if !self.unseen.is_empty() {
            return;
        }
        let heading = matches!(name, "h1" | "h2" | "h3" | "h4" | "h5" | "h6");
        match name {
            "br" => self.due = (self.due + 1).min(2),
            "hr" => self.due = 2,
            "p" | "pre" | "blockquote" | "table" | "ul" | "ol" | "dl" => self.due = self.due.max(2),
            _ if heading => self.due = 2,
            _ if BLOCKS.contains(&name) => self.due = self.due.max(1),
            _ => {}
        }
        match name {
            "pre" if tag.closes => self.pre = self.pre.saturating_sub(1),
            "pre" => self.pre += 1,
            "ul" | "ol" if tag.closes => {
                self.lists = self.lists.saturating_sub(1);
                self.due = if self.lists > 0 { 1 } else { 2 };
            }
            "ul" | "ol" => {
                self.due = if self.lists > 0 { 1 } else { 2 };
                self.lists = (self.lists + 1).min(8);
            }
            "li" if !tag.closes => self.mark(&format!("{}- ", "  ".repeat(self.lists.saturating_sub(1)))),
            "td" | "th" if !tag.closes && self.due == 0 => self.words(" | "),
            "a" if tag.closes => self.end_link(),
            "a" => self.link = tag.href.clone().map(|href| (href, self.out.len())),
            "img" => {
                if let Some(alt) = tag.alt.as_deref().filter(|alt| !alt.trim().is_empty()) {
                    self.words(&format!("[image: {alt}]"));
                }
            }
            _ if heading && !tag.closes => {
                let level = name[1..].parse().unwrap_or(1);
                self.mark(&format!("{} ", "#".repeat(level)));
            }
            _ => {}
        }
    }

    /// Something that is written as it is, in front of what comes.
    fn mark(&mut self, text: &str) {
        self.begin();
        self.out.push_str(text);
        self.marked = true;
    }

    /// Where a link leads stands behind its words, when it leads to another page.
    fn end_link(&mut self) {
        let Some((href, from)) = self.link.take() else { return };
        let href = href.trim();
        let elsewhere =
            !href.is_empty() && !href.starts_with('#') && !href.to_ascii_lowercase().starts_with("javascript:");
        if elsewhere && !self.out[from.min(self.out.len())..].trim().is_empty() {
            self.out.push_str(&format!(" ({href})"));
        }
    }

    fn done(self) -> String {
        let mut text = String::with_capacity(self.out.len());
        let mut empty = 0;
        for line in self.out.lines().map(str::trim_end) {
            empty = if line.is_empty() { empty + 1 } else { 0 };
            if empty < 2 && !(line.is_empty() && text.is_empty()) {
                text.push_str(line);
                text.push('\n');
            }
        }
        text.truncate(text.trim_end().len());
        text
    }
}

/// Text with its character references replaced. What is no known one stays as it is.
fn decoded(text: &str) -> String {
    const LONGEST: usize = 10;
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = rest.bytes().take(LONGEST).position(|byte| byte == b';');
        match end.and_then(|end| Some((reference(&rest[1..end])?, end))) {
            Some((c, end)) => {
                out.push(c);
                rest = &rest[end + 1..];
            }
            None => {
                out.push('&');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

fn reference(name: &str) -> Option<char> {
    if let Some(number) = name.strip_prefix('#') {
        let number = match number.strip_prefix(['x', 'X']) {
            Some(hex) => u32::from_str_radix(hex, 16).ok()?,
            None => number.parse().ok()?,
        };
        return char::from_u32(number).filter(|c| *c != '\0');
    }
    Some(match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        "nbsp" => ' ',
        "copy" => '©',
        "reg" => '®',
        "trade" => '™',
        "hellip" => '…',
        "mdash" => '—',
        "ndash" => '–',
        "lsquo" => '‘',
        "rsquo" => '’',
        "ldquo" => '“',
        "rdquo" => '”',
        "laquo" => '«',
        "raquo" => '»',
        "bull" => '•',
        "middot" => '·',
        "times" => '×',
        "larr" => '←',
        "rarr" => '→',
        "euro" => '€',
        "deg" => '°',
        "para" => '¶',
        "sect" => '§',
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_keeps_its_headings_lists_links_and_code() {
        let html = "<!DOCTYPE html><html><head><title>The  page</title><style>p{color:red}</style>\
            <script>if (a < b) alert('</p>')</script></head><body><!-- <p>no</p> -->\
            <nav><a href='/home'>Home</a> <a href='#top'>Top</a></nav><h1>One &amp; two</h1>\
            <p>A <b>bold</b>\n   word,<br>a line.</p><ul><li>first<li><p>second</p><ol><li>deep</ol></ul>\
            <pre>fn main() {\n    x &lt; y\n}</pre><table><tr><th>a<th>b<tr><td>1<td>2</table>\
            <img src=x alt='a cat'><IMG src=y></body></html>";
        assert_eq!(
            text(html),
            "The page\n\nHome (/home) Top\n\n# One & two\n\nA bold word,\na line.\n\n- first\n- second\n  - deep\n\n\
             fn main() {\n    x < y\n}\n\na | b\n1 | 2\n\n[image: a cat]"
        );
    }

    #[test]
    fn whatever_comes_is_some_page() {
        assert_eq!(text(""), "");
        assert_eq!(text("1 < 2 & 3 > 2 &nosuch; &#x41;&#0;&#99999999;"), "1 < 2 & 3 > 2 &nosuch; A&#0;&#99999999;");
        assert_eq!(text("<p>open <a href=\"/x\">link"), "open link");
        assert_eq!(text("a<script>b"), "a");
        assert_eq!(text("a<SCRIPT>b</Script >c"), "ac");
        assert_eq!(text("a<!-- b"), "a");
        assert_eq!(text("a<p title='>'>b</p"), "a\n\nb");
        assert_eq!(text("</div></a></pre></ul>x<"), "x<");
        assert_eq!(text("é<p>ü&eacute;<b\u{a0}é=ö>ß"), "é\n\nü&eacute;ß");
        assert_eq!(text("<textarea><b>typed</b></textarea>"), "<b>typed</b>");
    }

    #[test]
    fn a_page_made_to_be_slow_is_not() {
        // Each of these would take minutes if anything looked back over what it has read.
        for (open, close) in
            [("<svg>", "</style>"), ("<a href=x>", "</a>"), ("<pre> ", "</pre>"), ("<ul>", "<li>"), ("<", "&")]
        {
            let html = format!("{}{}", open.repeat(200_000), close.repeat(200_000));
            let _some = text(&html);
        }
    }

    proptest::proptest! {
        #[test]
        fn no_input_panics_and_nothing_is_made_up(html in "([a-z<>/&;#!'\"= \\n-]|<[a-z]{1,6}>|&[a-z]{2,4};|ß){0,60}") {
            let text = text(&html);
            proptest::prop_assert!(!text.starts_with('\n') && !text.ends_with(char::is_whitespace));
            proptest::prop_assert!(!text.contains("\n\n\n"));
        }
    }
}
