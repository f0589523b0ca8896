// Package proxy takes HTTP requests in, lets through those that their limits
// allow, and forwards them.
//
// # A request
//
// Each thing that a request goes through is a stage, and each stage is one file
// named by its verb:
//
//	downstream → record → address → tidy → match → lists → extract → new keys → idempotency → admit → forward → settle
//
// and back out through record. The downstream makes an exchange of the request; the
// stages between downstream and forward know nothing else, so that another downstream, for
// another HTTP server, needs no second copy of any stage. A stage says no by
// returning an error; refuse words the answer. Only record logs, only package
// respond picks a status, only new keys, admit and settle talk to the limiter.
//
// An exchange (exchange.go) is made of parts, and each part is written by one stage: what
// came in, where it goes, who asks, its keys, what is asked of limits, what was forwarded,
// what was answered. What a stage needs for itself is in the part that its file declares.
// The part about limits is an admission (admission.go). The stages that ask a store take
// that and not the exchange, and a test holds them to it. They are no package of their own:
// routes, limits and windows would then be there twice, once as they decide and once as
// extract, the log, explain and the operators' questions read them.
//
// # Who is asked at all
//
// The request is looked up in its route's lists (lists.go): one that denies refuses it
// with 403, whatever the others say; otherwise one that bypasses leaves all
// limits out. Lists are part of the configuration, files of theirs included: a
// change of one is a reload, and a bad line in it changes nothing. A browser's
// preflight (preflight.go) is looked up too and asks no limit either, unless its
// route says count_preflight, or a key of the route stands in it. Who passes
// without being counted gives nothing back, and ends no cooldown.
//
// # Bodies that are read for a key
//
// A key in the body makes the whole body wait here: 64 KiB of it unless the route
// says otherwise, and all bodies together no more than listen.max_buffered; one more
// is answered with 503. One client address may fill an eighth of that, and always one
// body (buffers.go). From its first byte on a body brings 500 bytes a second, give or
// take five seconds in all (body.go). Limits whose key is not in the body are asked
// first whether they would refuse (early.go): nothing is taken by that, so that the one
// decision about all limits stays all or none. A shared store is asked so only about
// bodies that are long, or of unknown length; about others what this process
// remembers of refusals must do, so that no short request costs a second round trip.
//
// # Who invents keys
//
// A key that nobody has sent yet costs memory, in the store too, and a permit of a
// new phone number is worth as much as one of a known one. With new_keys,
// newkeys.go bounds how many requests with keys that are new one client address may
// send to a route, whatever limits the route has. It is off unless the
// configuration asks for it: after a start every key is new, and who has many
// clients behind one address, or forgot to name a proxy in front, would refuse
// people who have done nothing. Keys that clients cannot choose do not count:
// addresses, claims of tokens that were verified, and the one that is global.
// What a limit in shadow mode counts by refuses nobody; on a route in shadow mode
// more new keys than allowed are only reported. Each process counts by itself,
// and nothing of it goes to the store: that would cost what it is to save.
//
// Where counts live in this process, one address cannot take all room for new keys
// whatever is configured: once half of the room is in use, an address that has brought
// an eighth of it gets no more counts for keys of its own, but one for all of them
// (limiter.Claim.Source). Nobody is refused for it while there is room.
//
// # Where it goes
//
// A route has an upstream or a reply of its own (reply.go): an answer, or a
// redirect. Both count alike. What goes to an upstream may be rewritten
// (rewrite.go) after everything else has been decided by what the client sent.
// Package upstream picks the target, and another one when that does no harm.
//
// # What counts
//
// A request takes its permits before it is forwarded, so that a crowd cannot
// slip through while answers are awaited. Settle gives them back, once and each
// by its id, when the request never left, when the route's refund_on names what
// came of it, or, for a limit with count, when the upstream's status is known
// and is none of those that stay counted. A status is known from the answer's
// header on, whatever happens to its body. What nobody knows stays counted: the
// client left, or the connection broke, before there was an answer.
//
// On a route with idempotency, a request with an idempotency key is counted together
// with being the first of its kind, in one step; its repeats, up to a bound, pass
// and are not counted (idempotency.go). What is given back whole is forgotten as a
// first one too. While the store is away everything counts.
//
// What is under way at a time is bounded by permits that a request holds until
// its end, renewed while it lasts (lease.go); those of a process that has died
// come back with their lease. They are released before the end of the answer is sent,
// so that whoever asks one after the other never meets the permit of the request
// before; its header and what is there of its body do not wait for a slow store
// (release.go). All else is given back after the answer: a client that asks again at
// once may come before the refund of a shared store, which takes one call of it. The
// quota fields say what is left once it is made, as far as the status decides it; what
// fails after the header, or a value of a distinct limit, they cannot tell of. A limit with a penalty counts its refusals in the
// same store and bans a key that it has refused too often (penalize.go).
//
// # Asked, not served
//
// Proxy.Explain takes a request through the same stages and tells of each what it says,
// of each limit what it would say, and what the upstream would be sent. It asks the store
// with Peek alone: nothing is taken, counted, learnt, logged or forwarded.
//
// A Replay (dry run) takes logged requests through them on a virtual clock, by counts in
// memory of its own. It differs from serving in four places: requests that wait for their
// turn stand in a line of its own (replay_line.go), concurrent permits are renewed by that
// clock, the outcome of a request is what the log says, and a limit whose key the log does
// not tell is left out (replay_known.go). A test compares its counts with those of a Proxy
// that serves the same requests at the same times.
//
// # What operators ask, and do
//
// Standing (standing.go) says how a key stands under every limit that counts by it, and
// Change (operate.go) resets, grants, bans or unbans it: in the store, and on every node
// in what it remembers of refusals, in its share for the time when the store is away,
// and in what it counts by itself. A key is named by its value, in any spelling that a
// request may have, or by an id (keyid.go) that is shown beside it.
//
// Each request leaves a record of what was decided (recent.go), in a ring: Decisions. The
// keys that are seen most, and refused most, are counted by minutes (top.go): Top. Both
// are bounded, and are written in one place at a request's end (observe.go), for about
// 1% of its time. The ring holds keys as clients sent them; what people see of them is
// masked when they look, and never written anywhere.
//
// # What people read of it
//
// One line a request, the access log (record.go), of the fields and in the format that the
// configuration has chosen (accesslog.go). What tells of a person stands there as a hash, cut
// short, or masked (redact.go): keys, paths that no route matches, and the client's
// address as the configuration wants it. With a secret the hash of a key is the
// beginning of its name in the store. Without one it is made with a salt that nodes of
// one Redis share, because a bare hash of a phone number is found out by trying all.
// Names in the store go without the salt: it would lie beside them, protect nothing
// from whoever reads them, and split the counts whenever it was lost.
//
// Where traces are on, each request has a span, and one each for the decision and the
// upstream, made when it is over (tracing.go); package trace sends them. What goes to the
// upstream names its span, also where nothing is recorded, so that the upstream decides
// as Weir did.
//
// # A reload
//
//	watch → read → compile → agree → swap → retire → report
//
// Package node watches the files, and is told of signals and pushes.
// A generation is everything that one configuration makes of requests. It never
// changes. Reload builds the next one and swaps one pointer; each request is
// served by the generation it began with, and the last request of a retired one
// closes its connections. A configuration with any fault changes nothing.
//
// # What is shared
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
// HTTP/1.1 is read and sent by package http1, which says what it refuses, and HTTP/2
// by net/http. Strings of a request over HTTP/1.1 share its connection's buffer: what
// outlives the handler is cloned (exchange.keep). What goes on top of that:
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
//     takes nothing more of an answer; what it asked for is given up (http1.HalfClosed).
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
