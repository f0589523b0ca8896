// Package proxy limits and forwards HTTP requests.
//
// # A request
//
// A request passes through stages. Each stage is one file, named after it:
//
//	downstream → record → address → tidy → match → lists → extract → new keys → idempotency → admit → forward → settle
//
// and back through record. The downstream, the adapter of an HTTP server, turns the
// request into an exchange; the stages between downstream and forward depend on nothing
// else, so that all HTTP servers share them. A stage refuses a request by returning an
// error; refuse generates the response. Only record logs, only package respond selects
// status codes, only new keys, admit and settle call the limiter.
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
// Between all requests: the pointer to the current generation and that
// generation's count of requests (generation.go), the pools of exchanges and downstreams, the
// source of request ids (requestid.go), the numbering plans of which numbers came
// (key/callingcode.go), the series that a route has looked up (figures.go), the
// limiter's store and the local store that stands in for it (admit.go), what is
// known of keys (newkeys.go), what operators may ask (observe.go), the memory for bodies (buffers.go), the
// figures (metrics.go), the log, and what is known of how targets
// fare, and which requests wait for one (package upstream). What connections share,
// certificates and the addresses that reset what they ask, is package frontend's. All else belongs to one request or never
// changes.
//
// # HTTP
//
// HTTP/1.1 is implemented by package http1, which documents what it refuses, and
// HTTP/2 by net/http. Strings of an HTTP/1.1 request share the buffer of its
// connection: those that outlive the handler are cloned (exchange.keep). In addition:
//
//   - The path that is matched is the path that is forwarded, in one spelling, unless
//     the route rewrites it. A path that servers read in different ways is refused with
//     400; so is one that a forgiving server would take for another route's, or for
//     another key. What a careless framework would take for the path of a route with
//     limits or lists is that route's (route.guarded). Package route has all the rules,
//     those of hosts and targets as well.
//   - A slash that is escaped is refused with 400 unless the route says that its
//     upstream keeps it as part of a segment (encoded_slash).
//   - The query is forwarded byte for byte. Where a key is read from it, or it
//     decides the route, a query that can be read in two ways is refused with 400.
//   - So is a request with a form in its body where a key, a cost or the route depends
//     on the query: some servers find one parameter in both. It is told by Content-Type,
//     so that no body is read for it; form_beside_query lets it pass (form_body.go).
//   - A header field or parameter that is a key and comes twice is refused with
//     400: which of the two the upstream would believe is not known.
//   - So is a request with a field or parameter that some servers take for a key, a
//     cost or an idempotency key although it is called otherwise: X_Phone or X.Phone for X-Phone
//     (CGI, WSGI, PHP), Phone, phone[] or [phone] for phone. So is one with such a
//     name for a field that Weir sets or believes (X_Forwarded_For, set_header), or
//     by which a route is chosen (confusable.go). Package key has the whole rule, and
//     the table of what servers read differently.
//   - A request that a limit refuses is answered before its body is read, also
//     when the client waits for 100 Continue.
//   - A # that is not escaped, in path or query, is refused with 400, and so is a
//     target of "*" with any method but OPTIONS. In the absolute form only http is
//     a scheme; https too where TLS is spoken, or where a trusted proxy says so, and
//     neither without a host.
//   - A host that is neither a name nor an address, with one port, is refused with 400.
//   - A request without a host is refused with 400. One of HTTP/1.0 is for the
//     address that the client has connected to: no upstream is ever told its own
//     name for what was asked for.
//   - CONNECT is answered with 405 and the end of the connection: this is no tunnel,
//     and what follows may be meant for the other end of one.
//   - What HTTP/2 lets through and HTTP/1 would read as something else is
//     answered with 400 (http2_malformed.go).
//   - A client that is slow beyond the bounds of listen.timeouts is cut; an
//     upstream never is for its client's sake (http1.Timeouts; body.go over HTTP/2).
//   - A client of HTTP/1 that ends its side of the connection behind a whole request
//     (half-close) gets its answer, and "100 Continue" before it, which one that has left
//     answers with a reset. One that resets the connection has left, and so has one that
//     takes nothing more of an answer; what it asked for is given up (http1.HalfClosePolicy).
//   - An HTTP/2 connection whose client takes back most of what it asks (rapid
//     reset) is closed, and what was taken back before it was looked at is nobody's
//     work. The address that does so on one connection after another waits
//     before its next one is read: 100 ms at first, 2 s at most. Package frontend does both.
//
// Where RFC 9110, 9112 and 9113 leave a choice, or net/http makes it:
//
//   - Any Transfer-Encoding but a single "chunked" is answered with 501, also
//     where 400 was possible: no other coding is known here.
//   - Requests over HTTP/1.1 that cannot be read are refused as all others are, by
//     application/problem+json, and logged and counted; their connection ends.
//   - A folded line is refused, in answers as well (RFC 9112 section 5.2), and so is an
//     answer with a blank before a colon: mended, it might frame the answer in another
//     way than others read it.
//   - Of the trailers of an answer, those that were not announced are passed on too.
//   - A client of HTTP/1.0 is answered by a status line of HTTP/1.1, as RFC 9110 section
//     2.5 has it, and in its framing; all that is sent to upstreams is
//     HTTP/1.1 or HTTP/2. Its Upgrade and its 100-continue mean nothing.
//   - Trailers of requests that were not announced are dropped; so are those that say who the
//     client is or how a message is framed, and those that a framework which merges trailers
//     into the header may take for a field that the route reads or sets.
//   - OPTIONS * is answered here: it asks about this server.
//   - Via on answers is optional and not sent: it would tell clients about the
//     inside. For the same reason "by" is left out of Forwarded, and the name in
//     Via to upstreams is a pseudonym that is made anew at each start.
//   - no-transform needs no care: bodies are passed on as they are.
//   - Malformed HTTP/2 may be answered with a 400 where a stream error was
//     possible (RFC 9113 section 8.1.1). net/http ends the connection at SETTINGS
//     that are given twice, which is stricter than it must be.
//   - Server push is never used. TLS is never renegotiated: crypto/tls as a server
//     refuses to.
//   - Floods of pings, settings, empty frames and header fragments over HTTP/2 are
//     bounded by net/http; of its own Weir bounds requests that are taken back, and those
//     under way (package frontend).
package proxy
