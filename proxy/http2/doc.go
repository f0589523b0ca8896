// Package http2 serves HTTP/2 to the clients of a proxy (RFC 9113, RFC 7541). It reads
// frames with the Framer, and header blocks with the decoder, of golang.org/x/net/http2,
// and has no parser of its own. It works on net.Conn, and does not depend on routes,
// limits or logs.
//
// A [Server] calls its [Handler] with a [Stream]: one request and its response. A request
// has its fields in the form of package http1, so that it can be forwarded to an upstream
// with an http1.Call without being converted. The Stream is its body, and receives the
// response.
//
// # How a connection works
//
// One goroutine reads a connection. When all that has arrived is read, it calls
// Handler.BeginHTTP2 for each request that is complete, which must not wait. If there is
// more to do, Handler.ServeHTTP2 runs on a goroutine of its own. A response is added to the
// output of the connection when its handler has returned, if it is short, or when Flush is
// called. Whoever adds something sends what all have added; with several requests in
// progress it lets the others run first, so that their responses are sent together.
//
// A connection that waits holds no buffer. Header blocks are sent without Huffman coding
// and without a dynamic table.
//
// # Guarantees
//
//   - Header blocks are validated when they are received: names, values, pseudo-header
//     fields, Host, and a Content-Length that is that of the body. Stream.Err says what is
//     wrong; the handler responds with that, and a stream whose request is malformed is
//     reset after the response.
//   - A response is complete or visibly cut: the end of the stream is sent only after the
//     whole body, and a handler that does not complete its response resets the stream.
//   - A response never waits for the rest of its request. A client that has not sent all of
//     it is told by RST_STREAM with NO_ERROR that the rest is not needed.
//   - Flow control is end to end: the window of a request body grows only as the handler
//     reads it. All bodies of a connection together use at most 1 MiB.
//   - No more than MaxStreams handlers run for a connection, also if their streams were
//     reset. Further requests are refused, and may be repeated (REFUSED_STREAM).
//   - Every wait has a timeout. A stream whose client gives no window for Timeouts.Write is
//     reset; a connection whose client reads nothing for so long is closed, and one that is
//     silent for half a minute while there are requests gets a PING.
//   - Priorities are accepted and not acted on (RFC 9218 section 2.1).
//
// # Abuse
//
//	rapid reset, made-you-reset   resets are counted with their cause; see ResetCounter. While
//	                              most requests are reset, handlers begin 2 ms late
//	CONTINUATION flood            at most 64 frames and twice MaxHeader in bytes
//	HPACK bomb                    a list beyond MaxHeader is decoded without being kept: 431
//	PING, SETTINGS, refusals      the connection is not read while 64 KiB wait to be sent
//	windows of 0, slow reading    Timeouts.Write
//	half-open streams             MaxStreams; see SetReadDeadline
package http2
