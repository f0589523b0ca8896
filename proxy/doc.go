// Package proxy limits and forwards HTTP requests.
//
// # Stages of a request
//
// A request passes through these stages, each in the file of that name:
//
//	http1_downstream, http2_downstream    adapts the HTTP server
//	record                                access log, metrics and traces; also after the response
//	clientip                              resolves the client address
//	normalize                             normalizes host and path
//	match                                 matches the route
//	confusable, connection, body_limit    check the header
//	lists                                 checks allow and deny lists
//	early                                 checks limits before a body is read
//	extract                               reads the keys
//	newkeys                               limits new keys
//	idempotency                           reads the idempotency key
//	admit                                 decides the limits
//	forward                               forwards to the upstream
//	settle                                refunds permits by the outcome
//
// The downstream turns a request into an exchange; the stages between downstream and
// forward depend on nothing else, so that all HTTP servers share them. A stage refuses a
// request by returning an error; refuse generates the response. Only record logs, only
// package respond selects status codes, only newkeys, early, admit and settle call the
// limiter.
//
// An exchange (exchange.go) consists of parts, each written by one stage: the incoming
// request, its target, the client, the keys, the claims on limits, the forwarded request,
// the response. State private to a stage is in the part that its file declares. The part
// about limits is an admission (admission.go). The stages that call a store take an
// admission instead of the exchange, which a test enforces. They are not a package of their
// own, because routes, limits and windows would then exist twice: for the decision, and for
// extract, the log, explain and the operators' queries.
//
// # Lists and preflights
//
// The request is looked up in the lists of its route (lists.go): if any denies it, it
// is refused with 403; otherwise, if any bypasses, no limit applies. Lists and their
// files are part of the configuration: changing one is a reload, and a list with an
// invalid line changes nothing. A CORS preflight (preflight.go) is looked up as well
// and not limited either, unless its route has count_preflight, or it carries a key of
// the route. A request that is not counted is never refunded, and resets no cooldown.
//
// # Keys in bodies
//
// If a key is in the body, the whole body is buffered: up to 64 KiB unless the route
// configures another limit, and all bodies together up to listen.max_buffered; beyond
// that the response is 503. One client address may use an eighth of that memory, and
// always one body (buffers.go). A body must average 500 bytes a second from its first
// byte, with five seconds of tolerance (body.go). Limits whose key is not in the body
// are peeked first (early.go): this takes no permits, so that the decision about all
// limits stays atomic. With a shared store this is done only for bodies that are long
// or of unknown length; for others only the local cache of refusals is used, so that a
// short request needs no second round trip.
//
// # New keys
//
// A new key costs memory, also in the store, and gives a client that invents phone
// numbers new permits each time. new_keys (newkeys.go) limits how many requests
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
// apply to all of them. A forwarded request may be rewritten (rewrite.go) after
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
// (idempotency.go). A full refund removes the record as well. While the store is
// unreachable every request counts.
//
// Concurrent limits use permits that a request holds until its end and renews meanwhile (lease.go); those of a dead process
// return when their lease ends. They are released before the end of the response is sent, so that a client that sends one
// request after the other is not refused because of its previous one; the header and the available part of the body do not wait
// for a slow store (release.go). All other refunds are made after the response, and take one call to a shared store: a client
// that repeats its request at once may be faster. The rate limit fields show the quota after the refund, as far as the status
// decides it; they cannot reflect failures after the header, or refunds of distinct limits. A limit with a penalty counts its
// refusals in the same store and bans a key that was refused too often (penalize.go).
//
// # Explain and replay
//
// Proxy.Explain passes a request through the same stages and reports the result of each
// stage and each limit, and the request that would be forwarded. It calls the store only
// with Peek: no permits are taken, and nothing is counted, logged or forwarded.
//
// A Replay (dry run) passes logged requests through the stages on a virtual clock, with
// its own store in memory. It differs from serving in four places: waiting requests are
// queued in its own queue (replay_line.go), concurrent permits are renewed by the virtual
// clock, the outcome of a request is taken from the log, and a limit whose key is not in
// the log is skipped (replay_known.go). A test compares its counts with those of a Proxy
// that serves the same requests at the same times.
//
// # Operators
//
// Standing (standing.go) returns the state of a key under every limit that counts by it,
// and Change (operate.go) resets, grants, bans or unbans it: in the store and, on every
// node, in the cache of refusals, in the local share for outages of the store, and in
// local counts. A key is given by its value, in any spelling that a request may use, or
// by an id (keyid.go) that is shown with it.
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
// upstream, created at the end of the request (tracing.go); package trace exports them.
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
// All requests share the following, and nothing else that changes:
//
//   - the pointer to the current generation, and its count of users (generation.go)
//   - the pools of exchanges and downstreams (proxy.go)
//   - the generator of request ids (requestid.go)
//   - the numbering plans of phone numbers that have been used (key/callingcode.go)
//   - the metrics, and each route's cache of them (metrics.go, figures.go)
//   - the limiter's store, and the local store of the fallback (admit.go, fallback.go)
//   - the keys seen recently (newkeys.go)
//   - recent requests and top keys, for operators (observe.go)
//   - the memory budget of buffered bodies (buffers.go)
//   - the log
//   - the health of targets, and the queues of requests that wait for one (package upstream)
//
// Connections share certificates, and the addresses that reset many requests (package
// frontend). All other state belongs to one request or is immutable.
//
// # HTTP
//
// HTTP/1.1 is implemented by package http1, which documents what it refuses, and
// HTTP/2 by net/http. Strings of an HTTP/1.1 request share the buffer of its
// connection: those that outlive the handler are cloned (exchange.keep). In addition:
//
//   - The path that is matched is the path that is forwarded, in one spelling, unless
//     the route rewrites it. A path that servers interpret in different ways is refused
//     with 400; so is a path that a lenient server would interpret as that of another
//     route, or with another key. If a lenient framework would take a path for that of a
//     route with limits or lists, that route matches (route.guarded). Package route
//     documents all rules, also those for hosts and targets.
//   - An escaped slash is refused with 400 unless the route declares that its upstream
//     keeps it as part of a segment (encoded_slash).
//   - The query is forwarded byte for byte. If a key is read from it, or the route
//     matches parameters, an ambiguous query is refused with 400.
//   - A request with a form in its body is refused with 400 if a key, a cost or the route
//     depends on the query: some servers merge the parameters of both. A form is
//     recognized by Content-Type, without reading the body; form_beside_query allows
//     it (form_body.go).
//   - A header field or parameter that is a key and occurs twice is refused with
//     400, because it is unknown which value the upstream uses.
//   - A field or parameter that some servers confuse with a key, a cost or an
//     idempotency key of another name is refused with 400: X_Phone or X.Phone for X-Phone
//     (CGI, WSGI, PHP), Phone, phone[] or [phone] for phone. The same applies to names
//     that are confused with fields that Weir sets or trusts (X_Forwarded_For,
//     set_header), or by which a route is matched (confusable.go). Package key documents
//     the rule, with a table of how servers differ.
//   - A request that a limit refuses gets its response before its body is read, also
//     when the client waits for 100 Continue.
//   - An unescaped # in path or query is refused with 400, and so is the target "*" with
//     any method but OPTIONS. The scheme of a target in absolute form must be http, or
//     https if the connection uses TLS or a trusted proxy says so, and the target must
//     have a host.
//   - A host that is neither a name nor an address, with at most one port, is refused
//     with 400.
//   - A request without a host is refused with 400. The host of an HTTP/1.0 request
//     without one is the local address of the connection; the upstream's own name is
//     never used in its place.
//   - CONNECT is refused with 405 and the connection is closed: Weir is not a tunnel,
//     and the following bytes may be meant for the other end of one.
//   - An HTTP/2 request that would be another message in HTTP/1 is refused with 400
//     (http2_malformed.go).
//   - A client that exceeds listen.timeouts is disconnected. Slow clients never cause
//     an upstream connection to be closed (http1.Timeouts; body.go for HTTP/2).
//   - An HTTP/1 client that closes its sending side after a complete request (half-close)
//     gets its response. A 100 Continue is sent before it, to which a client that has
//     disconnected replies with a TCP reset. A client that resets the connection, or that
//     does not read the response in time, has disconnected, and its request is aborted
//     (http1.HalfClosePolicy).
//   - An HTTP/2 connection on which the client resets most of its requests (rapid
//     reset) is closed. Requests that were reset before they were served are skipped. If
//     an address does this on several connections, reading from its next connection is
//     delayed: 100 ms at first, 2 s at most. Both are implemented by package frontend.
//
// Where RFC 9110, 9112 and 9113 allow a choice, or net/http makes it:
//
//   - Any Transfer-Encoding except a single "chunked" is refused with 501, even where 400
//     is possible, because no other coding is implemented.
//   - HTTP/1.1 requests that cannot be parsed are refused like all others, with
//     application/problem+json, and are logged and counted; the connection is closed.
//   - A folded header line is refused, also in responses (RFC 9112 section 5.2), and so is
//     a response with whitespace before a colon: repaired, the framing of the response
//     might differ from what others read.
//   - Trailers of responses are forwarded even if they were not announced.
//   - A response to an HTTP/1.0 client has the status line of HTTP/1.1 (RFC 9110 section
//     2.5) and HTTP/1.0 framing. Upstreams receive HTTP/1.1 or HTTP/2 only. Upgrade and
//     Expect: 100-continue of HTTP/1.0 requests are ignored.
//   - Trailers of requests that were not announced are dropped. So are trailers that
//     identify the client or frame a message, and those that a framework which merges
//     trailers into the header may take for a field that the route reads or sets.
//   - OPTIONS * is not forwarded, because it asks about this server.
//   - Via is optional in responses and not sent, because it would reveal the internal
//     network. For the same reason "by" is omitted from Forwarded, and the name in
//     Via to upstreams is a random pseudonym that changes at each start.
//   - no-transform is always satisfied: bodies are forwarded unchanged.
//   - Malformed HTTP/2 may be refused with 400 where a stream error is possible (RFC
//     9113 section 8.1.1). net/http closes the connection if a setting is given twice,
//     which is stricter than required.
//   - Server push is not used. TLS is not renegotiated: crypto/tls does not support it
//     in servers.
//   - Floods of pings, settings, empty frames and header fragments in HTTP/2 are limited
//     by net/http. Package frontend limits reset requests and requests in progress.
package proxy
