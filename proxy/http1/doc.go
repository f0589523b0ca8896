// Package http1 implements HTTP/1.1 for a proxy (RFC 9110, RFC 9112). A [Server]
// reads requests from clients, and a [Client] sends requests to upstreams. Both use
// the same parser, the same rules for framing, and the same writer. The package works
// on net.Conn (TCP, TLS and unix sockets) and does not depend on routes, limits or
// logs.
//
// The main types are:
//
//   - [Exchange]: a request from a client and the response to it
//   - [Call]: a request to an upstream and its response
//   - [Pool]: the idle connections to one upstream endpoint
//   - [Fields]: the field lines of a received head
//   - [Head]: a head that is being written
//   - [Body]: a received body
//
// # Usage
//
// A [Handler] is called with an [Exchange] on the goroutine of the connection:
//
//	func handle(x *http1.Exchange) {
//		call := client.NewCall(x)
//		defer call.Release()
//		x.Fields.StripHopByHop()          // before anything is added
//		head := call.Begin(x.Method(), x.Host(), x.Path())
//		head.AddFields(&x.Fields)
//		head.Add("X-Forwarded-For", ip)   // the proxy's own fields come last
//		if err := pool.Send(call); err != nil {
//			x.Begin(502)              // err is a *CallError
//			_ = x.Send(text)
//			return
//		}
//		call.Response.Fields.StripHopByHop()
//		head = x.Begin(call.Response.Status)
//		head.AddFields(&call.Response.Fields)
//		_ = x.Relay(call)
//	}
//
// A request without a body, or with a body that arrives together with its head, is
// served by this one goroutine without allocation. In the best case this takes two
// reads, two writes, and two more reads that return nothing: one of these checks that
// the upstream connection is not stale (see reuseAttempt), and one begins the wait for
// the next request. A second goroutine is used only for a body that is still arriving.
// A connection that waits for a request holds no buffer.
//
// If one goroutine reads the request body while another one writes the response, the
// handler uses a [Duplex]. A client that does not use HTTP/1.1 passes its request body
// to Call.SetSource, and receives the response as a [Receiver] from Call.RelayTo.
//
// # Lifetime of strings
//
// The strings of a Request, a Response, a Field and a trailer share the memory of a
// connection's buffer. Strings of a request are valid until its handler returns, those
// of a response until Call.Release, and those of an interim response until
// Call.Interim returns. The bytes that Body.Next returns are valid until the next
// method call on that body. Code that keeps such a string for longer, in a log, a key
// or a map, must clone it (strings.Clone). With the build tag poison, buffers are
// overwritten with 0xDB at the end of their message, and never reused, and two writes to
// a connection at the same time panic.
//
// # Guarantees
//
//   - Heads and chunk lines are generated from the parsed message. Received framing is
//     never forwarded. A received field line is copied only if it has exactly the form
//     in which it would be generated.
//   - Every name, value, target and status that is sent has been validated, when it
//     was parsed or when it was added. If one cannot be sent, the error is ErrOutgoing,
//     and nothing has been sent.
//   - A connection is reused only if it is certain that this is safe. Its request was
//     sent completely and its response was read completely. Neither side announced the
//     end of the connection. It was not upgraded, and not authenticated by NTLM or
//     Negotiate. No unexpected bytes have arrived. Any error in a head or body ends the
//     connection.
//   - The recipient can detect that a message is truncated. The last chunk is not sent,
//     and a response that is delimited by the end of the connection ends with a reset.
//   - A client gets at most one 100 Continue, and none after the final response has
//     begun. It gets the first 100 other interim responses, and none if it
//     uses HTTP/1.0. More of them are dropped. Each one restarts the timeout of the
//     response, until ten times that timeout have passed.
//   - Bytes that follow a request for an upgrade are not forwarded before the upstream
//     has responded with 101 to that request. Without such a response they are the next
//     request.
//   - A response never waits for the rest of its request. If the rest is at most
//     256 KiB, it is discarded and the connection is kept. Otherwise the
//     response announces the end of the connection, and the connection lingers so that
//     the client can read the response.
//   - Every wait has a timeout: those of Timeouts on the client's side and those of
//     Client on the upstream's side. To avoid setting a deadline for each message,
//     deadlines may be late by an eighth of the timeout, at most by one second. They
//     are never early.
//
// An unsolicited response that an upstream sends while the next request is in transit
// cannot be distinguished from the response to that request.
//
// # What is accepted
//
// Every message that is forwarded is framed anew, so that what is read leniently forwards
// nothing ambiguous. From upstreams everything is accepted of which it is certain where it
// ends. From clients the grammar is accepted, because what a client writes otherwise may
// be meant for another reader.
//
//	rule                                     from clients  from upstreams
//
//	a line that ends with LF alone           refused       accepted       9112 2.2
//	an empty line before the start line      accepted      accepted       9112 2.2
//	CR that no LF follows                    refused       refused        9112 2.2
//	NUL and other controls in a value        refused       refused        9110 5.5
//	a folded line                            refused       refused        9112 5.2
//	blanks before a colon                    refused       left out       9112 5.1
//	two equal Content-Length                 refused       accepted       9110 8.6
//	two different Content-Length             refused       refused        9112 6.3
//	Content-Length and Transfer-Encoding     refused       refused        9112 6.1
//	another coding than chunked              refused       refused        9112 6.1
//	a chunk size of many zeros               accepted      accepted       9112 7.1
//	a chunk size of 2^62 or more             refused       refused        9112 7.1
//	blanks between a chunk size and CRLF     refused       accepted       9112 7.1
//	blanks around an extension               accepted      accepted       9112 7.1.1
//	quoted strings in an extension           accepted      accepted       9112 7.1.1
//	CR or LF in a quoted string              refused       refused        9112 7.1.1
//	a chunk line of 1 KiB                    refused       accepted       9112 7.1.1
//	a chunk line of more than 4 KiB          refused       refused        9112 7.1.1
//	trailer fields beyond the limits         left out      left out       9110 6.5.1
//	an invalid trailer field                 refused       refused        9112 7.1.2
//	a status of 600 to 999                   -             accepted       9110 15
//	a body of a response 205                 -             left out       9110 15.3.6
//	more than 100 interim responses          -             left out       9110 15.2
//
// # Refused messages
//
// An invalid message ends its connection. A client gets an error response; an invalid
// response of an upstream becomes a CallError. Each reason is an error of its own, so
// that it can be counted.
//
//	ErrRequestLine    more than 4 empty lines                               9112 2.2
//	ErrMethod         not a token, longer than 32 bytes, other separators   9112 3, 9110 9.1
//	ErrConnect        CONNECT: tunnels are not supported                    9110 9.3.6
//	ErrTarget         not /..., http(s)://host..., or * for OPTIONS;        9112 3.2
//	                  bytes other than 0x21 to 0x7e, "#", user information  9110 4.2.4
//	ErrTargetTooLong  longer than Limits.Target                             9112 3
//	ErrVersion        not HTTP/1.0 or HTTP/1.1                              9112 2.3
//	ErrMajorVersion   another major version                                 9110 15.6.6
//	ErrStatusLine     not three digits from 100 on, other versions          9112 4
//	ErrLineEnd        a line that ends with LF, or CR without LF            9112 2.2
//	ErrFoldedLine     a line that begins with whitespace                    9112 5.2
//	ErrFieldName      not a token, whitespace before the colon, no colon    9112 5.1
//	ErrFieldValue     a control character                                   9110 5.5
//	ErrTooLarge       a head larger than Limits.Head                        6585 5
//	ErrTooManyFields  more lines than Limits.Fields                         6585 5
//	ErrHost, ErrHostMissing, ErrHostRepeated                                9112 3.2, 9110 7.2
//	ErrContentLength  not 1 to 18 digits, a list                            9110 8.6
//	ErrContentLengthRepeated      several lines                             9112 6.3
//	ErrLengthAndTransferCoding    together with Transfer-Encoding           9112 6.1
//	ErrTransferCoding             not "chunked", once                       9112 6.1
//	ErrTransferCodingHTTP10       in HTTP/1.0                               9112 6.1
//	ErrExpectation    not 100-continue                                      9110 10.1.1
//	ErrChunk          signs, other whitespace, bare CR or LF, 2^62 or more  9112 7.1
//	ErrChunkLine, ErrChunkOverhead  too many bytes that are not data        9112 7.1.1
//	ErrTrailer        an invalid trailer section                            9112 7.1.2
//	ErrTooManyInterim             more than 64 MiB of 1xx                   9110 15.2
//	ErrUnexpectedUpgrade          101 that was not requested                9110 7.8
//
// The space before an empty reason phrase may be missing, because widespread servers omit
// it. A Host that differs from the authority of an absolute target is ignored (RFC 9112
// section 3.2.2).
package http1
