//! Server-sent events, as far as AG-UI needs them: the `data` of each event.
//!
//! Of our own because no crate fits: `sse-stream` has no limits, `eventsource-stream` is no longer kept, `sse-core`
//! limits an event but not a line; and all of them drop a last event without a blank line behind it, which counts in
//! AG-UI.

/// Turns bytes into the data of events. Lines end with LF, CR LF or CR.
#[derive(Debug)]
pub(super) struct Decoder {
    /// The line that has not ended yet.
    line: Vec<u8>,
    /// The data lines of the event that has not ended yet, joined with LF.
    data: Option<String>,
    /// The last byte was a CR, so an LF right behind it ends no second line.
    after_cr: bool,
    /// No line has ended yet, so a byte order mark may lead.
    at_start: bool,
    line_limit: usize,
}

/// Why the stream cannot be read on.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// A line, or the data of one event, has more bytes than the limit.
    TooLong,
    /// A line is not UTF-8.
    NotText,
}

impl Decoder {
    /// A decoder that refuses lines, and events, of more than `line_limit` bytes.
    pub(super) const fn new(line_limit: usize) -> Self {
        Self { line: Vec::new(), data: None, after_cr: false, at_start: true, line_limit }
    }

    /// Reads on, and gives the data of each event that ended.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<Vec<String>, Unreadable> {
        let mut events = Vec::new();
        for part in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let text = part.strip_suffix(b"\n").or_else(|| part.strip_suffix(b"\r")).unwrap_or(part);
            if self.after_cr && part == b"\n" {
                self.after_cr = false;
                continue;
            }
            self.after_cr = part.ends_with(b"\r");
            if self.line.len() + text.len() > self.line_limit {
                return Err(Unreadable::TooLong);
            }
            self.line.extend_from_slice(text);
            if text.len() < part.len() {
                events.extend(self.end_line()?);
            }
        }
        Ok(events)
    }

    /// The stream ended. A last event without a blank line behind it still counts.
    pub(super) fn finish(&mut self) -> Result<Option<String>, Unreadable> {
        if !self.line.is_empty() {
            self.end_line()?;
        }
        Ok(self.data.take())
    }

    /// Takes the line that just ended. A blank one ends an event.
    fn end_line(&mut self) -> Result<Option<String>, Unreadable> {
        let line = std::mem::take(&mut self.line);
        let mut line = std::str::from_utf8(&line).map_err(|_| Unreadable::NotText)?;
        if std::mem::take(&mut self.at_start) {
            line = line.strip_prefix('\u{feff}').unwrap_or(line);
        }
        if line.is_empty() {
            return Ok(self.data.take());
        }
        // Comments (`:`) have an empty name; `event`, `id` and `retry` say nothing in AG-UI.
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        if name == "data" {
            let value = value.strip_prefix(' ').unwrap_or(value);
            match &mut self.data {
                Some(data) => {
                    if data.len() + value.len() >= self.line_limit {
                        return Err(Unreadable::TooLong);
                    }
                    data.push('\n');
                    data.push_str(value);
                }
                none => *none = Some(value.to_owned()),
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(pieces: &[&[u8]], limit: usize) -> Result<Vec<String>, Unreadable> {
        let mut decoder = Decoder::new(limit);
        let mut events = Vec::new();
        for piece in pieces {
            events.extend(decoder.feed(piece)?);
        }
        events.extend(decoder.finish()?);
        Ok(events)
    }

    #[test]
    fn every_line_ending_comments_and_fields_without_meaning_are_read() {
        let stream = ": hello\n\nevent: x\nid: 7\nretry: 1\ndata: one\n\ndata:two\r\ndata:  three\r\n\r\n\
                      data: four\r\rdata\n\ndata: last";
        assert_eq!(decode(&[stream.as_bytes()], 100).unwrap(), ["one", "two\n three", "four", "", "last"]);
    }

    #[test]
    fn a_mark_at_the_start_is_no_part_of_the_name() {
        assert_eq!(decode(&["\u{feff}data: x\n\n".as_bytes()], 100).unwrap(), ["x"]);
    }

    #[test]
    fn too_long_lines_and_events_and_binary_are_refused() {
        assert_eq!(decode(&[b"data: 0123456789"], 15), Err(Unreadable::TooLong));
        assert_eq!(decode(&[b"data: 01234", b"56789\n\n"], 15), Err(Unreadable::TooLong));
        assert_eq!(decode(&[b"data: 0123\ndata: 4567\ndata: 89\n"], 11), Err(Unreadable::TooLong));
        assert_eq!(decode(&[b"data: \xff\n"], 15), Err(Unreadable::NotText));
    }

    proptest! {
        #[test]
        fn where_the_bytes_are_cut_makes_no_difference(
            lines in prop::collection::vec("(data: ?[a-zä]{0,5}|: [a-z]{0,3}|)", 0..12),
            ending in prop::sample::select(vec!["\n", "\r\n", "\r"]),
            cut in 1..7_usize,
        ) {
            let stream: String = lines.iter().flat_map(|line| [line.as_str(), ending]).collect();
            let pieces: Vec<&[u8]> = stream.as_bytes().chunks(cut).collect();
            prop_assert_eq!(decode(&pieces, 1_000), decode(&[stream.as_bytes()], 1_000));
            let joined: Vec<String> = decode(&[stream.as_bytes()], 1_000).unwrap();
            prop_assert_eq!(joined, decode(&[stream.replace(ending, "\n").as_bytes()], 1_000).unwrap());
        }
    }
}
