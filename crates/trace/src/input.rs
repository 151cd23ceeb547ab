//! The text of a trace as a stream: plain, gzip or zstd.

use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use std::io::{BufRead, BufReader, Chain, Cursor, Read};

/// A file that inflates to more is refused: it is a bomb, or needs more memory than a trace is worth.
const LARGEST: u64 = 1 << 36;
/// Text inflates to no more than this many times its packed size; only runs of one byte do.
const MOST_TIMES: u64 = 200;

/// Counts what passes.
struct Meter<R> {
    source: R,
    passed: u64,
}

impl<R: Read> Read for Meter<R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let n = self.source.read(into)?;
        self.passed += n as u64;
        Ok(n)
    }
}

/// The first bytes, which tell what a file is, are put back before the rest.
type Packed<R> = BufReader<Meter<Chain<Cursor<Vec<u8>>, R>>>;

enum Form<R: Read> {
    Plain(Packed<R>),
    Gzip(Box<flate2::bufread::MultiGzDecoder<Packed<R>>>),
    Zstd(Box<Frames<Packed<R>>>),
}

/// The frames of a zstd file, one after the other.
struct Frames<R: BufRead> {
    /// Always there, but for the moment between two frames.
    frame: Option<StreamingDecoder<R, FrameDecoder>>,
}

impl<R: BufRead> Frames<R> {
    fn new(source: R) -> Result<Frames<R>, String> {
        let frame = StreamingDecoder::new(source).map_err(|e| format!("no zstd stream: {e}"))?;
        Ok(Frames { frame: Some(frame) })
    }

    fn source(&self) -> Option<&R> {
        self.frame.as_ref().map(StreamingDecoder::get_ref)
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        loop {
            let Some(frame) = &mut self.frame else { return Ok(0) };
            match frame.read(into)? {
                0 if !into.is_empty() => {}
                n => return Ok(n),
            }
            if frame.get_mut().fill_buf()?.is_empty() {
                return Ok(0);
            }
            let source = self.frame.take().map(StreamingDecoder::into_inner);
            let next = source.map(StreamingDecoder::new).transpose();
            self.frame = next.map_err(|e| std::io::Error::other(e.to_string()))?;
        }
    }
}

/// The text of a file, inflated as it is read.
pub struct Input<R: Read> {
    form: Form<R>,
    given: u64,
}

/// Why a stream ends early.
#[derive(Debug, PartialEq, Eq)]
pub enum Break {
    /// The compressed stream breaks off or is broken.
    Off,
    /// It cannot be read, or must not be.
    Refused(String),
}

impl<R: Read> Input<R> {
    /// Looks at the first bytes.
    pub fn new(mut source: R) -> Result<Input<R>, String> {
        let mut first = Vec::new();
        let seen = source.by_ref().take(4).read_to_end(&mut first);
        seen.map_err(|e| e.to_string())?;
        let start = first.clone();
        let meter = Meter { source: Cursor::new(first).chain(source), passed: 0 };
        let packed = BufReader::with_capacity(1 << 16, meter);
        let form = match start.as_slice() {
            [0x1f, 0x8b, ..] => Form::Gzip(Box::new(flate2::bufread::MultiGzDecoder::new(packed))),
            [0x28, 0xb5, 0x2f, 0xfd] => Form::Zstd(Box::new(Frames::new(packed)?)),
            _ => Form::Plain(packed),
        };
        Ok(Input { form, given: 0 })
    }

    /// Fills the buffer, or as much of it as there is.
    pub fn fill(&mut self, into: &mut [u8]) -> (usize, Result<(), Break>) {
        let mut filled = 0;
        while filled < into.len() {
            match self.some(&mut into[filled..]) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return (filled, Err(self.broken(&e))),
            }
            if let Err(refused) = self.check(filled as u64) {
                return (filled, Err(Break::Refused(refused)));
            }
        }
        self.given += filled as u64;
        (filled, Ok(()))
    }

    fn some(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match &mut self.form {
            Form::Plain(source) => source.read(into),
            Form::Gzip(source) => source.read(into),
            Form::Zstd(source) => source.read(into),
        }
    }

    fn broken(&self, error: &std::io::Error) -> Break {
        match &self.form {
            Form::Plain(_) => Break::Refused(error.to_string()),
            _ => Break::Off,
        }
    }

    fn check(&self, now: u64) -> Result<(), String> {
        let packed = match &self.form {
            Form::Plain(_) => return Ok(()),
            Form::Gzip(source) => source.get_ref().get_ref().passed,
            Form::Zstd(source) => source.source().map_or(0, |packed| packed.get_ref().passed),
        };
        let most = packed.saturating_mul(MOST_TIMES).clamp(1 << 24, LARGEST);
        if self.given + now > most {
            return Err(format!("inflates to more than {most} bytes: no trace, or not one that can be read here"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    fn whole(packed: &[u8]) -> (Vec<u8>, Result<(), Break>) {
        let mut text = vec![0; 100_000];
        let (n, end) = Input::new(packed).unwrap().fill(&mut text);
        text.truncate(n);
        (text, end)
    }

    #[test]
    fn frames_follow_one_another() {
        let parts = [vec![b'a'; 5000], (0..9000).map(|i| (i % 251) as u8).collect(), b"end".to_vec()];
        let packed: Vec<u8> =
            parts.iter().flat_map(|part| compress_to_vec(part.as_slice(), CompressionLevel::Fastest)).collect();
        assert_eq!(whole(&packed), (parts.concat(), Ok(())));
        // One that breaks off gives what came before.
        let (text, end) = whole(&packed[..packed.len() - 4]);
        assert!(text.starts_with(&parts[0]) && end == Err(Break::Off));
    }
}
