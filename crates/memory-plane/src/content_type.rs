//! The media type of a file, by the extension of its name.

/// Returns the media type of a file of this name.
pub(crate) fn content_type(name: &[u8]) -> &'static str {
    let dot = name.iter().rposition(|byte| *byte == b'.');
    let extension = dot.and_then(|dot| name.get(dot + 1..)).unwrap_or_default();
    match extension.to_ascii_lowercase().as_slice() {
        // HLS (RFC 8216) and DASH: players reject other types.
        b"m3u8" => "application/vnd.apple.mpegurl",
        b"mpd" => "application/dash+xml",
        b"ts" => "video/mp2t",
        b"mp4" | b"m4s" | b"m4v" => "video/mp4",
        b"m4a" | b"aac" => "audio/mp4",
        b"vtt" => "text/vtt",
        b"html" | b"htm" => "text/html; charset=utf-8",
        b"css" => "text/css",
        b"js" => "text/javascript",
        b"json" => "application/json",
        b"txt" => "text/plain; charset=utf-8",
        b"jpg" | b"jpeg" => "image/jpeg",
        b"png" => "image/png",
        b"webp" => "image/webp",
        b"svg" => "image/svg+xml",
        b"gz" => "application/gzip",
        _ => "application/octet-stream",
    }
}
