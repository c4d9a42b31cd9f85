//! One long run of bytes: generated text in memory, or mapped files one after another with an
//! empty line between them.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use memmap2::Mmap;

use crate::data::DataError;

/// Stands between two files, so that a document never runs from one into the next.
const BETWEEN_FILES: &[u8] = b"\n\n";

/// A file that is read through the page cache, however large it is.
#[derive(Debug)]
struct MappedFile {
    path: PathBuf,
    file: File,
    map: Mmap,
}

#[derive(Debug)]
enum Part {
    Memory(Vec<u8>),
    Mapped(MappedFile),
}

/// Bytes of text by position.
#[derive(Debug)]
pub struct Text {
    name: String,
    parts: Vec<Part>,
    /// Position of each part's end.
    ends: Vec<u64>,
}

impl MappedFile {
    fn open(path: &Path) -> Result<Self, DataError> {
        let unreadable = |error| DataError::Unreadable { path: path.to_owned(), error };
        let file = File::open(path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        if !metadata.is_file() {
            return Err(unreadable(io::Error::other("it is no regular file")));
        }
        if metadata.len() == 0 {
            return Err(DataError::Empty { path: path.to_owned() });
        }
        // SAFETY: the mapping is read-only and private to this struct, and nothing here writes to
        // the file. Another process could: bytes that change under the mapping are read as they
        // are (any byte is a valid token), and a file that was truncated is noticed by its length
        // before every read. A truncation within that read can still end the process, as it would
        // with any mapped file; data files are not to be edited in place during a run.
        #[allow(unsafe_code)]
        let map = unsafe { Mmap::map(&file) }.map_err(unreadable)?;
        Ok(Self { path: path.to_owned(), file, map })
    }

    fn bytes(&self) -> Result<&[u8], DataError> {
        let path = || self.path.clone();
        let metadata = self.file.metadata();
        let found = metadata.map_err(|error| DataError::Unreadable { path: path(), error })?.len();
        let expected = self.map.len() as u64;
        if found != expected {
            return Err(DataError::Changed { path: path(), expected, found });
        }
        Ok(&self.map)
    }
}

impl Part {
    fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::Mapped(file) => file.map.len() as u64,
        }
    }

    fn bytes(&self) -> Result<&[u8], DataError> {
        match self {
            Self::Memory(bytes) => Ok(bytes),
            Self::Mapped(file) => file.bytes(),
        }
    }
}

impl Text {
    fn new(name: String, parts: Vec<Part>) -> Self {
        let mut end = 0;
        let ends = parts.iter().map(|part| {
            end += part.len();
            end
        });
        let ends = ends.collect();
        Self { name, parts, ends }
    }

    /// Text in memory; `name` says to people what it is.
    pub fn memory(name: &str, bytes: Vec<u8>) -> Self {
        Self::new(name.to_owned(), vec![Part::Memory(bytes)])
    }

    /// Files, mapped into memory one after another.
    ///
    /// # Errors
    /// If there is no file, or the first that is missing, unreadable or empty.
    pub fn files(paths: &[PathBuf]) -> Result<Self, DataError> {
        if paths.is_empty() {
            return Err(DataError::NoFiles);
        }
        let mut parts = Vec::new();
        for path in paths {
            if !parts.is_empty() {
                parts.push(Part::Memory(BETWEEN_FILES.to_vec()));
            }
            parts.push(Part::Mapped(MappedFile::open(path)?));
        }
        let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        Ok(Self::new(names.join(", "), parts))
    }

    /// What the text is, for people.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Up to `len` bytes from `start` on; fewer at the end of the text.
    ///
    /// # Errors
    /// If a file has changed its length since it was opened.
    pub fn read(&self, start: u64, len: usize) -> Result<Vec<u8>, DataError> {
        let mut bytes = Vec::with_capacity(len.min(self.len() as usize));
        let mut index = self.ends.partition_point(|&end| end <= start);
        while bytes.len() < len && index < self.parts.len() {
            let part = self.parts[index].bytes()?;
            let part_start = self.ends[index] - part.len() as u64;
            let from = (start + bytes.len() as u64 - part_start) as usize;
            let take = (len - bytes.len()).min(part.len() - from);
            bytes.extend_from_slice(&part[from..from + take]);
            index += 1;
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_follow_one_another() {
        let folder = tempfile::tempdir().unwrap();
        let paths = [folder.path().join("a.txt"), folder.path().join("b.txt")];
        std::fs::write(&paths[0], "first").unwrap();
        std::fs::write(&paths[1], "second").unwrap();
        let text = Text::files(&paths).unwrap();
        assert_eq!(text.len(), 13);
        assert_eq!(text.read(0, 100).unwrap(), b"first\n\nsecond");
        for (start, len) in [(0, 3), (3, 3), (4, 5), (5, 2), (7, 6), (12, 1), (13, 4)] {
            let end = (start + len).min(13);
            let expected = &b"first\n\nsecond"[start..end];
            assert_eq!(text.read(start as u64, len).unwrap(), expected);
        }
    }

    #[test]
    fn bad_files_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let (empty, missing) = (folder.path().join("empty.txt"), folder.path().join("missing.txt"));
        std::fs::write(&empty, "").unwrap();
        assert!(matches!(Text::files(&[]), Err(DataError::NoFiles)));
        for path in [&empty, &missing, &folder.path().to_owned()] {
            let error = Text::files(std::slice::from_ref(path)).unwrap_err().to_string();
            assert!(error.contains(&path.display().to_string()), "{error}");
        }
    }

    #[test]
    fn a_truncated_file_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text.txt");
        std::fs::write(&path, "some text").unwrap();
        let text = Text::files(std::slice::from_ref(&path)).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(3).unwrap();
        let error = text.read(0, 9).unwrap_err();
        assert!(matches!(error, DataError::Changed { expected: 9, found: 3, .. }));
    }
}
