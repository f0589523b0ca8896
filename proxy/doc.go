// Package proxy limits and forwards HTTP requests.
//
// # Stages of a request
//
// A request passes through these stages, each in the file of that name:
//
//	downstream                            adapts the HTTP server
//	record                                access log, metrics and traces; also after the response
//	exchange                              resolves the client address
//	extract                               normalizes host and path, and matches the route
//	exchange, refuse                      check the header
//	lists                                 checks allow and deny lists
//	early                                 checks limits before a body is read
//	extract                               reads the keys
//	early                                 limits new keys, and reads the idempotency key
//	limit/admit                           decides the limits
//	forward                               forwards to the upstream
//	limit/refund                          refunds permits by the outcome
//
// The downstream turns a request into an exchange; the stages between downstream and
// forward depend on nothing else, so that all HTTP servers share them. A stage refuses a
// request by returning an error; refuse generates the response. Only record logs, only
// package respond selects status codes, and only early and package limit call the
// limiter.
//
// An exchange (exchange.go) consists of parts, each written by one stage: the incoming
// request, its target, the client, the keys, the claims on limits, the forwarded request,
// the response. State private to a stage is in the part that its file declares. The part
// about limits is an Admission of package limit, which decides about it, and settles it by its outcome; it
// knows nothing else of a request. What a route has of limits is a limit.Route.
//
// # Lists and preflights
//
// The request is looked up in the lists of its route (lists.go): if one with deny has it,
// or one with only does not, it is refused with 403; otherwise, if one with bypass has it, no limit applies. Lists and their
// files are part of the configuration: changing one is a reload, and a list with an
// invalid line changes nothing. A CORS preflight (lists.go) is looked up as well
// and not limited either, unless its route has count_preflight, or it carries a key of
// the route or a parameter with the name of one. A request that is not counted is never refunded, and resets no cooldown.
//
// # Keys in bodies
//
// If a key is in the body, the whole body is buffered: up to 64 KiB unless the route
// configures another limit, and all bodies together up to listen.max_buffered; beyond
// that the response is 503. What counts is the memory that is taken, by the buffer of the
// body and by that of the connection through which it is read, but not the buffer of the
// head (8 KiB for a connection) nor garbage. One client address may use an eighth of the
// memory, and always one body; the last eighth is for the first 4 KiB of each body, so that
// slow clients with long bodies do not exclude short ones (package body).
//
// A body must average 500 bytes a second from its first byte, with five seconds of
// tolerance (body.go). Limits whose key is not in the body are peeked first (early.go):
// this takes no permits, so that the decision about all limits stays atomic. With a
// shared store this is done only for bodies that are long or of unknown length; for
// others only the local cache of refusals is used, so that a short request needs no
// second round trip.
//
// # New keys
//
// A new key costs memory, also in the store, and gives a client that invents phone
// numbers new permits each time. new_keys (early.go) limits how many requests
// with new keys one client address may send to a route. It is off by default: after
// a start every key is new, and with many clients behind one address, or a proxy
// that is missing in trusted_proxies, it would refuse legitimate clients. Keys that
// clients cannot choose do not count: addresses, claims of verified tokens, and the
// global key. Neither do keys of limits in shadow mode; on a route in shadow mode
// an excess of new keys is only reported. Each process counts by itself, without
// the store.
//
// With counts in memory, one address can never use all of it: once half of the memory
// is in use, an address whose keys use an eighth gets one shared count for all its
// further keys (limiter.Claim.Source). No request is refused for that while there is
// memory.
//
// # Forwarding
//
// A route has an upstream, or a fixed response or redirect (reply.go). Limits
// apply to all of them. A forwarded request may be rewritten (forward.go) after
// everything else has been decided by the original request. Package upstream
// selects the target, and retries on another one if that is safe.
//
// # Counting and refunds
//
// A request takes its permits before it is forwarded, so that concurrent
// requests cannot exceed a limit while responses are pending. Settle refunds
// them, once and each by its id, if the request was not forwarded, if its
// outcome is in the route's refund_on, or, for a limit with count, if the
// upstream's status is known and is not one of those that stay counted. The
// status is known from the response header on, whatever happens to the body.
// With an unknown outcome the request stays counted: the client left, or the
// connection broke, before there was a response.
//
// On a route with idempotency, a request with an idempotency key is counted and
// recorded in one step; a limited number of repeats pass without being counted
// (early.go). A full refund removes the record as well. While the store is
// unreachable every request counts.
//
// Concurrent limits use permits that a request holds until its end and renews meanwhile (limit/lease.go); those of a dead process
// return when their lease ends. They are released before the end of the response is sent, so that a client that sends one
// request after the other is not refused because of its previous one; the header and the available part of the body do not wait
// for a slow store (limit/lease.go). If a client leaves before the upstream has responded, its permits are held for the response
// timeout of the upstream, which may still be working (heldLeases there). Refunds, cooldown resets and returns that the
// status of the response decides are started before its head is sent, over the connection of later decisions (settleHead): a
// client of this node that repeats its request at once is not refused because of it. Others are made after the response. The rate limit fields show the quota after the refund, as far as the status
// decides it; they cannot reflect failures after the header, or refunds of distinct limits. A limit with return_on notes its permits
// under a second key, the subject; a response of another route returns all that is noted under the same subject (limit/refund.go). A limit with a penalty counts its
// refusals in the same store and bans a key that was refused too often (limit/penalize.go).
//
// # Decisions for other proxies
//
// Proxy.Decide (decide.go) passes a request that another proxy has received through the stages up to
// admit, on an exchange like any other, and returns the decision as a value: allowed or not, the response
// for the client, and what an outcome needs later (limit/pending.go). Nothing is forwarded; the permits stay taken until
// Proxy.Settle is told the status of the response, on any node and once, and then does what settle
// does. The log, the metrics and the records of these requests are those of others, with the listener they came by. A decision
// has a deadline: one that the store makes later is refunded, and on_store_failure decides instead
// (takeInTime). Package decide has the listener and the dialects of the proxies that ask.
//
// # Explain and replay
//
// Proxy.Explain passes a request through the same stages and reports the result of each
// stage and each limit, and the request that would be forwarded. It calls the store only
// with Peek: no permits are taken, and nothing is counted, logged or forwarded.
//
// A Replay (dry run) passes logged requests through the stages on a virtual clock, with
// its own store in memory. It differs from serving in three places: requests wait and
// concurrent permits are renewed by the virtual clock, the outcome of a request is taken
// from the log, and a limit whose key is not in the log is skipped (replay_count.go). A test
// compares its counts with those of a Proxy that serves the same requests at the same times.
//
// # Operators
//
// Standing (operate_standing.go) returns the state of a key under every limit that counts by it,
// and Change (operate.go) resets, grants, bans or unbans it: in the store and, on every
// node, in the cache of refusals, in the local share for outages of the store, and in
// local counts. While the store is unreachable a change applies on this node, and waits for
// the store (operate_standing.go). A key is given by its value, in any spelling that a request may use, or
// by an id (operate.go) that is shown with it.
//
// Decisions are recorded in a ring buffer (recent.go). Top counts the keys with most
// requests and most refusals per minute (top.go). Both are bounded, and are updated in
// one place at the end of a request (observe.go), for about 1% of its time. The ring
// buffer holds keys as sent by clients; they are masked when they are read, and never
// written elsewhere.
//
// # Logs and traces
//
// The access log has one line per request (record.go), with the configured fields and format
// (accesslog.go). Personal data is hashed, truncated or masked (redact.go): keys, paths that
// no route matches, and the client's address as configured. With a secret, the hash of a key
// is the beginning of its name in the store. Without one, it is made with a salt that the
// nodes of one Redis share, because a plain hash of a phone number can be reversed by brute
// force. Names in the store do not use the salt: it would be stored next to them, and losing
// it would split the counts.
//
// With tracing, each request has a span, with child spans for the decision and the
// upstream, created at the end of the request (record.go); package trace exports them.
// traceparent is sent to the upstream also if the request is not sampled, so that the
// upstream makes the same sampling decision.
//
// # A reload
//
//	watch → read → compile → agree → swap → retire → report
//
// Package node watches the files and handles signals and pushes. A generation
// is the compiled form of one configuration. It is immutable. Reload builds the
// next one and swaps one pointer; each request is served by the generation it
// began with, and the last request of a retired one closes its connections. An
// invalid configuration changes nothing.
//
// # Shared state
//
// State shared by requests:
//
//   - the pointer to the current generation, and each generation's count of requests
//     (generation.go)
//   - the pool of exchanges
//   - the source of request ids (exchange.go)
//   - the numbering plans loaded so far (key/phone.go)
//   - the metrics (metrics.go), and the time series that a route has looked up (metrics.go)
//   - the limiter's store, and the local store used while it is unreachable (limit/admit.go)
//   - the concurrent permits of requests whose clients left (limit/lease.go)
//   - the keys seen recently (early.go)
//   - the directives of operators (lists.go), and their changes of keys that wait for the store
//     (operate_standing.go)
//   - recent decisions and top keys (observe.go)
//   - the memory for buffered bodies (package body)
//   - the log
//   - when an invalid response of a target was last logged (reply.go), and whether an ignored limit of a
//     descriptor was (decide_descriptors.go)
//   - the health of targets and the queues for them (package upstream)
//   - certificates, connections, and addresses that reset requests (package frontend)
//   - addresses that send wrong tokens (package admin)
//   - what became of the requests that return_on counts (package sends)
//
// What every request counts is kept in stripes, one for each processor, and added up when it is
// read (package stripe).
//
// All other state belongs to one request, or is immutable.
//
// # HTTP
//
// HTTP/1.1 is implemented by package http1, which documents what it refuses, and
// HTTP/2 by package http2. Strings of a request share the buffer of its connection or
// stream: those that outlive the handler are cloned (exchange.detach). In addition:
//
//   - The matched path is forwarded, in normalized form, unless the route rewrites it; escapes of
//     reserved characters stay as the client wrote them. A path that servers interpret differently
//     is refused with 400. So is a path that a lenient server would interpret as one of another
//     route or with another key. A path that only a lenient framework would route to a route with
//     limits or lists is matched to that route (route.guarded). Package route has the rules for
//     paths, hosts and request targets.
//   - An escaped slash is refused with 400, unless the route states that its upstream keeps it
//     as part of a segment (encoded_slash).
//   - The query is forwarded unchanged. If a key is read from it, or it determines the route, an
//     ambiguous query is refused with 400.
//   - A request with a form in its body is refused if a key, a cost or the route depends on the
//     query, because some servers merge both. This is decided by Content-Type, without reading
//     the body. The route can allow it with form_beside_query (form_body.go).
//   - A repeated header field or parameter that is a key is refused with 400, because it is
//     unknown which of the two the upstream uses.
//   - A field or parameter that some servers treat as a key, a cost or an idempotency key, but
//     that has another name, is refused: X_Phone or X.Phone for X-Phone (CGI, WSGI, PHP); Phone,
//     phone[] or [phone] for phone. The same applies to fields that Weir sets or trusts
//     (X_Forwarded_For, set_header), and to those that select a route (exchange.go). Package
//     key has the full rules, and a table of the differences between servers.
//   - A request that a limit refuses is answered before its body is read, also if the client
//     waits for 100 Continue.
//   - An unescaped # in path or query is refused with 400, and so is the request target "*" with
//     a method other than OPTIONS. The absolute form requires the scheme http and a host; https
//     is accepted over TLS, or if a trusted proxy reports it.
//   - A host that is neither a name nor an address with an optional port is refused with 400.
//   - A request without a host is refused with 400. For HTTP/1.0, the address that the client
//     connected to is used instead; the upstream's own name is never sent as the requested host.
//   - CONNECT is answered with 405, and the connection is closed: the data that follows may be
//     meant for the other end of a tunnel.
//   - HTTP/2 requests that would be malformed or ambiguous in HTTP/1 are answered with 400
//     (http2_malformed.go).
//   - A client that exceeds listen.timeouts is disconnected. The timeouts of clients never end
//     upstream connections (http1.Timeouts; body.go for HTTP/2).
//   - An HTTP/1 client that half-closes its connection after a complete request gets its
//     response. Sending "100 Continue" first detects clients that have closed the connection:
//     they reply with a reset. If a client resets the connection or stops accepting data, its
//     request is canceled (http1.HalfClosePolicy).
//   - An HTTP/2 connection whose client resets most of its requests (rapid reset) is closed, and
//     requests reset before they were processed are dropped. If an address does this on one
//     connection after another, its next connections are delayed by 100 ms to 2 s (package
//     frontend).
//
// Choices where RFC 9110, 9112 and 9113 allow several behaviors, or net/http has one of its own:
//
//   - A Transfer-Encoding other than a single "chunked" is answered with 501, also where 400
//     would be allowed.
//   - Malformed HTTP/1.1 requests are answered with application/problem+json like other refusals,
//     logged and counted; their connection is closed.
//   - Folded lines (obs-fold) are refused, also in responses (RFC 9112 section 5.2), and so is
//     whitespace before a colon in a response: other parsers may frame a corrected message
//     differently.
//   - Unannounced trailers of responses are forwarded.
//   - HTTP/1.0 clients get a status line with HTTP/1.1 (RFC 9110 section 2.5) and framing that
//     HTTP/1.0 supports. Their Upgrade and "Expect: 100-continue" are ignored. Requests to
//     upstreams use HTTP/1.1 or HTTP/2.
//   - Unannounced trailers of requests are dropped. So are trailers that identify the client or
//     frame the message, and those that a framework which merges trailers into the header could
//     confuse with a field that the route reads or sets.
//   - OPTIONS * is answered by Weir, because it asks about this server.
//   - Via is optional in responses and not sent: it would reveal internals. For the same reason
//     "by" is omitted from Forwarded, and the name in Via to upstreams is a pseudonym, new at
//     each start.
//   - no-transform requires nothing: bodies are forwarded unchanged.
//   - Malformed HTTP/2 is answered with 400 before the stream error (RFC 9113 section 8.1.1),
//     logged and counted like other refusals.
//   - WebSocket over HTTP/2 (extended CONNECT, RFC 8441) is to all stages the GET request that it
//     would be in HTTP/1.1. Weir makes the key of the handshake and checks the upstream's answer
//     to it.
//   - Server push and TLS renegotiation are not supported.
//   - Floods of frames, resets and concurrent requests over HTTP/2 are limited by package http2,
//     addresses that reset requests by package frontend.
package proxy
