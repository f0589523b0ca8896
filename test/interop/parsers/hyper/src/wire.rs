//! A connection that brings given bytes and then its end, and takes everything.

use hyper::rt::{Read, ReadBufCursor, Write};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

pub struct Wire {
    bytes: Vec<u8>,
    at: usize,
    open: bool, // it brings something already: an upstream speaks only when it is asked
    waits: Option<Waker>,
}

impl Wire {
    pub fn new(bytes: Vec<u8>, open: bool) -> Wire {
        Wire { bytes, at: 0, open, waits: None }
    }
}

impl Read for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, mut to: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        if !self.open {
            self.waits = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let n = to.remaining().min(self.bytes.len() - self.at);
        let at = self.at;
        to.put_slice(&self.bytes[at..at + n]);
        self.at += n;
        Poll::Ready(Ok(()))
    }
}

impl Write for Wire {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        self.open = true;
        if let Some(waker) = self.waits.take() {
            waker.wake();
        }
        Poll::Ready(Ok(from.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
