// Package http1 is HTTP/1.1 for a proxy (RFC 9110, RFC 9112): a [Server] that
// reads requests, a [Client] that sends them on, and with one parser, one place
// that decides the framing, and one writer for both. It works on net.Conn (TCP,
// TLS and unix sockets) and is independent of routes, limits and logs.
//
// # Usage
//
// A [Handler] is called on the goroutine of its connection, with an [Exchange]:
//
//	func handle(x *http1.Exchange) {
//		call := client.NewCall(x)
//		defer call.Release()
//		x.Fields.StripHopByHop()                  // hop-by-hop fields, first of all
//		head := call.Begin(x.Method(), x.Host(), x.Path())
//		head.AddFields(&x.Fields)
//		head.Add("X-Forwarded-For", ip)   // our own fields, last
//		if err := pool.Send(call); err != nil {
//			x.Begin(502)              // err is a *Fault: whose, and whether to try again
//			_ = x.Send(text)
//			return
//		}
//		call.Response.Fields.StripHopByHop()
//		head = x.Begin(call.Response.Status)
//		head.AddFields(&call.Response.Fields)
//		_ = x.Relay(call)
//	}
//
// A request without a body, or whose body arrived with its head, is handled by this
// one goroutine without allocating: at best with two reads, two writes, and two reads
// that return nothing, of which one checks that the upstream's connection is not stale
// (see asking), and one starts the wait for the next request. A second goroutine is
// used only for a body that is still arriving. A connection that waits for a request
// holds no buffer.
//
// A handler whose other side is not HTTP/1.1 uses a [Duplex] of the exchange, which
// allows one goroutine to read the body while another one responds, or passes the body
// to a Call by Call.SetSource and the response to a [Receiver] by Call.RelayTo.
//
// # Lifetime of strings
//
// Strings of a Request, a Response, a Field and a Body's trailer share the memory
// of a connection's buffer. Those of a request are valid until its handler
// returns; those of a response until Call.Release, those of an interim response
// until Call.Interim returns. The bytes of Body.Next are valid until the next call
// of a method of that body. Whoever keeps one longer, for a log, a key or a map,
// clones it (strings.Clone). With the build tag http1poison a buffer is
// overwritten with 0xDB when its message has ended, and never used again.
//
// # Guarantees
//
//   - Heads and chunk lines are generated from what was understood, and never
//     relayed: no received framing byte reaches the other side. A field line that
//     was read and stands in the buffer byte for byte as it would be generated is
//     copied from there.
//   - Every name, value, target and status that is sent has been checked, when it
//     was parsed or when it was added. ErrOutgoing says that one cannot be sent;
//     nothing has been sent then.
//   - A connection is used again only on proof: its request was sent whole, its
//     answer was read whole, nothing is left of either, nobody announced its end,
//     it was not upgraded, not authenticated by NTLM or Negotiate, and nothing has
//     come since. Any error of a head or a body ends its connection, for good.
//   - A message that was cut short looks cut on the other side. There is no last
//     chunk, and an answer that would end with its connection ends with a reset.
//   - At most one 100 Continue reaches a client, and none after the final answer
//     has begun. At most Limits.Interim other interim answers do, and none reaches
//     HTTP/1.0.
//   - What follows a request that asks for an upgrade stays here until the upstream
//     has answered 101 to exactly that, and is otherwise the next request.
//   - An answer never waits for the rest of its request. If that is worth reading
//     (Limits.Drain) the connection is kept, and otherwise the answer says that it
//     ends, and it lingers so that the client can read that.
//   - Waiting is bounded in every state: Timeouts on one side, the fields of Client
//     on the other. A deadline is never early; it may be an eighth or a second late,
//     whichever is less, so that it is not set anew for each message.
//
// What comes from an upstream of itself while the next request is on its way
// cannot be told from the response to that by anybody.
//
// # Refused messages
//
// A refusal ends the connection; a client is told why, an upstream's response
// becomes a CallError. Each is an error of its own, to be counted.
//
//	ErrRequestLine    more than Limits.EmptyLines empty lines                    9112 2.2
//	ErrMethod         no token, longer than 32 bytes, other separators      9112 3, 9110 9.1
//	ErrConnect        CONNECT: there is no tunnel here                      9110 9.3.6
//	ErrTarget         not /..., http(s)://host..., or * for OPTIONS;        9112 3.2
//	                  bytes beyond 0x21 to 0x7e, "#", user information      9110 4.2.4
//	ErrTargetTooLong  longer than Limits.Target                             9112 3
//	ErrVersion        anything but HTTP/1.0 and HTTP/1.1                    9112 2.3
//	ErrMajorVersion   another major version                                 9110 15.6.6
//	ErrStatusLine     no three digits from 100 to 599, other versions       9112 4
//	ErrLineEnd        a line that ends with LF, or CR without LF            9112 2.2
//	ErrFoldedLine         a line that begins with a blank                       9112 5.2
//	ErrFieldName      no token, a blank before the colon, no colon          9112 5.1
//	ErrFieldValue     a control character                                   9110 5.5
//	ErrTooLarge       a head larger than Limits.Head                        6585 5
//	ErrTooManyFields  more lines than Limits.Fields                         6585 5
//	ErrHost, ErrHostMissing, ErrHostRepeated                                9112 3.2, 9110 7.2
//	ErrContentLength         no 1 to 18 digits, a list                             9110 8.6
//	ErrContentLengthRepeated more than one line, even if all say the same          9112 6.3
//	ErrLengthAndTransferCoding with Transfer-Encoding                                9112 6.1
//	ErrTransferCoding         anything but "chunked", once                          9112 6.1
//	ErrTransferCodingHTTP10      in HTTP/1.0                                           9112 6.1
//	ErrExpectation    anything but 100-continue                             9110 10.1.1
//	ErrChunk          signs, blanks, quotes, bare CR or LF, 16 digits       9112 7.1
//	ErrChunkLine, ErrChunkOverhead  too much that is not data               9112 7.1.1
//	ErrTrailer        a trailer section that is no field section            9112 7.1.2
//	ErrTooManyInterim        more 1xx than Limits.Interim                          9110 15.2
//	ErrUnexpectedUpgrade         101 to something that nobody asked for                9110 7.8
//
// It is lenient in three things. Empty lines may come before a request (9112 2.2);
// a status without a reason needs no space behind it, since widespread servers
// leave that out; and a Host that differs from the authority of an absolute target
// is ignored (9112 3.2.2).
package http1
