package proxy

import (
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gaissmai/bart"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/reuse"
	"github.com/weir-proxy/weir/proxy/body"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/limit"
	routing "github.com/weir-proxy/weir/proxy/route"
)

// An exchange is the state of one request as it passes through the stages. It is used by one
// goroutine at a time. The stages between downstream and forward depend on nothing else, so that
// all downstreams can share them.
type exchange struct {
	generation *generation // the generation that serves the request
	enteredBy  int         // the stripe in which it is a user of the generation
	id         string      // record: the request id
	idGiven    bool        // record: a trusted proxy has sent it
	began      time.Time
	duration   time.Duration // settle: until the response was written, without settling after it

	in              inbound         // downstream: the received request
	request         routing.Request // downstream, normalize, match: host, path and query, by which the route is matched
	client          client          // address: the client
	route           *route          // match: the route, set by setRoute
	list            *config.List    // lists: the list that refused the request or let it bypass limits
	extracted       extracted       // extract: the keys, and the data from which they are read
	newKeys         string          // new keys: the result for too many of them; empty if there were not
	limit.Admission                 // extract, admit, settle: the claims on limits and the decision
	forwarded       forwardRequest  // forward: the forwarded request
	outcome         forwardOutcome  // forward: its result
	rateLimitFields rateLimitFields // refuse, forward: the rate limit fields of the response
	response        clientResponse  // downstream: the response that was sent
	trace           *tracing        // record: the spans; nil if there is no tracing
	usage           *responseUsage  // forward: what the response says that was used; nil if it is not asked

	reused    bool   // the downstream reuses x for its next request
	unusedIDs string // ids for the next requests
}

// An inbound is a request as received by its downstream, except for its target.
type inbound struct {
	scheme       string // "http" or "https"
	listener     string // what the request came by, if it did not come to be forwarded; see Question
	peer         netip.AddrPort
	header       fields
	notPlain     []string // names of fields that some servers may take for others, such as X_Phone or X.Phone
	notPreflight []string // of OPTIONS: names of fields that a browser's preflight never has
	length       int64    // announced length of the body; -1 if unknown
	body         bodyReader
	asked        AskedDescriptor // instead of a request; see DecideDescriptors
	number       int             // of the descriptor in its call
	parseErr     error           // error in the HTTP syntax of the request

	userAgent, referer string // finish: values for the log
}

// A clientResponse describes the response that was sent to the client.
type clientResponse struct {
	status      int   // final status
	bytes       int64 // of the body
	streamReset bool  // the client reset the stream and kept the connection
}

// A bodyReader reads the body of a request. It is implemented by the downstream.
type bodyReader interface {
	// readAll reads the body to its end and keeps it, so that it can be forwarded unchanged. It
	// returns an error that wraps key.ErrBodyTooLarge if the body is longer than maxBytes bytes.
	readAll(maxBytes int64) ([]byte, error)
}

// readBody reads the body of x to its end into buffer. The reader itself holds beside bytes.
func (x *exchange) readBody(buffer *body.Buffer, from io.Reader, maxBytes, beside int64) ([]byte, error) {
	buffer.Client = x.client.network
	read, err := buffer.ReadAll(from, x.in.length, maxBytes, beside)
	switch {
	case err == nil:
		return read, x.ensureUsage(buffer, read)
	case errors.Is(err, http1.ErrBodyTooLarge), errors.As(err, new(*http.MaxBytesError)):
		return nil, bodyTooLarge(maxBytes)
	}
	return nil, fmt.Errorf("%w: %w", errBody, err)
}

// bodyTooLarge says that a body is longer than maxBytes bytes.
func bodyTooLarge(maxBytes int64) error {
	return fmt.Errorf("%w: more than %d bytes", key.ErrBodyTooLarge, maxBytes)
}

// A literalBody is a body in memory, whose length is that of the exchange.
type literalBody []byte

// readAll implements bodyReader.
func (b literalBody) readAll(int64) ([]byte, error) { return b, nil }

// fields looks up header fields by canonical name. *http1.Fields does so without allocating.
type fields interface {
	Values(name string) []string
}

// noFields is the header of an exchange that holds no request.
type noFields struct{}

// Values implements fields.
func (noFields) Values(string) []string { return nil }

// reset clears x for the next request and keeps its allocated memory. It works in place: assigning
// a new exchange would copy 2.5 KB twice, over a cold stack, and cost 1 % of a request. Each part
// is reset by one assignment.
func (x *exchange) reset() {
	x.generation, x.enteredBy, x.id, x.idGiven, x.began, x.duration = nil, 0, "", false, time.Time{}, 0
	x.in, x.in.notPlain = inbound{}, reuse.Memory(x.in.notPlain)
	x.request.Reset()
	x.client, x.route, x.list, x.newKeys = client{}, nil, nil, ""
	x.extracted.reset()
	x.Admission.Reset()
	x.forwarded.request.Reset()
	x.outcome = forwardOutcome{}
	x.rateLimitFields.reset()
	x.response, x.trace, x.usage = clientResponse{}, nil, nil
}

// setRoute sets the route of x.
func (x *exchange) setRoute(r *route) { x.route, x.Admission.Route = r, &r.Route }

func newExchange() any {
	x := &exchange{in: inbound{header: noFields{}}}
	x.forwarded.edit = x.onHeader
	return x
}

// A clientIPResolver determines the client's address, behind trusted proxies by a header field such
// as X-Forwarded-For.
type clientIPResolver struct {
	trusted *bart.Lite // nil if there is none
	header  string     // canonical name of the field to which trusted proxies append
	prefix  int        // limits count IPv6 addresses by a prefix of this many bits
}

func newClientIPResolver(c config.ClientIP) clientIPResolver {
	a := clientIPResolver{header: c.Header, prefix: c.IPv6Prefix}
	if len(c.TrustedProxies) > 0 {
		a.trusted = new(bart.Lite)
	}
	for _, p := range c.TrustedProxies {
		a.trusted.Insert(p.Masked())
	}
	return a
}

// A client is the sender of a request.
type client struct {
	addr        netip.Addr
	network     netip.Prefix // the address, or its IPv6 prefix, by which limits count
	trustedPeer bool         // the peer of the connection is a trusted proxy
}

// resolve sets the client's address. It is the peer's address unless the peer is a trusted proxy.
// Otherwise the header is read from right to left up to the first address that is not trusted. If
// an entry on the way is not an address, or all are trusted, the last trusted address read is used.
// A client can therefore never choose its address by what it sends.
func (r *clientIPResolver) resolve(x *exchange) {
	c := &x.client
	c.addr = unmapAddr(x.in.peer.Addr())
	c.trustedPeer = r.trusted != nil && r.trusted.Contains(c.addr)
	if c.trustedPeer {
		c.addr = r.lastUntrusted(c.addr, x.in.header.Values(r.header))
	}
	c.addr = limiter.ClientAddr(c.addr) // a proxy is trusted by the address that it has itself
	c.network = r.network(c.addr)
}

// lastUntrusted reads the entries of lines from right to left while they are addresses of trusted proxies,
// and returns the last address read. It returns last if there is none.
func (r *clientIPResolver) lastUntrusted(last netip.Addr, lines []string) netip.Addr {
	for i := len(lines) - 1; i >= 0; i-- {
		rest := lines[i]
		for rest != "" {
			comma := strings.LastIndexByte(rest, ',')
			entry := strings.Trim(rest[comma+1:], " \t")
			rest = rest[:max(comma, 0)]
			if entry == "" {
				continue // a list may have empty elements (RFC 9110 section 5.6.1)
			}
			addr := ParseForwardedFor(entry)
			if !addr.IsValid() {
				return last
			}
			last = addr
			if !r.trusted.Contains(addr) {
				return last
			}
		}
	}
	return last
}

// ParseForwardedFor parses one entry of X-Forwarded-For: an address, with or without a port and brackets, of which one may be
// missing. It returns the zero Addr for anything else.
func ParseForwardedFor(s string) netip.Addr {
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"))
	if err != nil {
		ap, _ := netip.ParseAddrPort(s)
		addr = ap.Addr()
	}
	return unmapAddr(addr)
}

// unmapAddr returns the canonical form of an address: ::ffff:1.2.3.4 becomes 1.2.3.4, and a zone is
// removed.
func unmapAddr(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// network returns the prefix by which limits count addr.
func (r *clientIPResolver) network(addr netip.Addr) netip.Prefix {
	if !addr.Is6() {
		return netip.PrefixFrom(addr, addr.BitLen())
	}
	p, _ := addr.Prefix(r.prefix)
	return p
}

// A fieldNames is a set of names of header fields that some servers may confuse with other fields
// of a request. It is immutable once compiled.
type fieldNames struct {
	folded   map[string][]string // canonical names by their folded form, see key.FoldHeader
	notPlain []string            // names that have characters other than letters, digits and hyphens
}

// add adds names in canonical form.
func (f *fieldNames) add(names ...string) {
	if f.folded == nil && len(names) > 0 {
		f.folded = map[string][]string{}
	}
	for _, name := range names {
		folded := key.FoldHeader(name)
		if slices.Contains(f.folded[folded], name) {
			continue
		}
		f.folded[folded] = append(f.folded[folded], name)
		if !key.IsPlainHeader(name) {
			f.notPlain = append(f.notPlain, name)
		}
	}
}

// has reports whether the most lenient server would take a name for one of f. The name must have
// been folded by key.FoldHeader.
func (f *fieldNames) has(folded string) bool { return len(f.folded[folded]) > 0 }

// confusable returns an iterator over the names of f for which a server may take a field of x that
// has another name. It costs nothing for the usual request, in which all names are plain.
func (f *fieldNames) confusable(x *exchange) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for _, sent := range x.in.notPlain {
			names := f.folded[key.FoldHeader(sent)]
			if len(names) > 0 && !slices.Contains(names, sent) && !yield(names[0]) {
				return
			}
		}
		for _, name := range f.notPlain { // the plain name with the same folded form may be taken for name
			plain := http.CanonicalHeaderKey(strings.ReplaceAll(key.FoldHeader(name), "_", "-"))
			if len(x.in.header.Values(plain)) > 0 && !slices.Contains(f.folded[key.FoldHeader(name)], plain) && !yield(name) {
				return
			}
		}
	}
}

// errMalformed reports that a field of the request may be taken for one that is protected.
var errMalformed = errors.New("malformed request")

// protectFields sets the fields that must not be confused with others on any route: those that Weir sets
// or trusts, those that determine how a body is read, and those that select the route.
func (g *generation) protectFields(routes []*config.Route) {
	g.protectedFields.add(
		"Forwarded", "X-Real-Ip", "X-Request-Id", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port",
		"Host", "Connection", "Content-Length", "Transfer-Encoding", "Content-Type", "Content-Encoding", "Authorization", "Cookie",
	)
	g.protectedFields.add(slices.Concat(g.keyFields, g.proxyFields)...)
	for _, r := range routes {
		for name := range r.Match.Headers {
			g.protectedFields.add(http.CanonicalHeaderKey(name))
		}
	}
}

// checkConfusable finds the fields of the request that may be taken for a field from which a key, a
// cost or an idempotency key of the route is read; reading one of those fails later. It returns
// errMalformed if a field may be taken for one that is protected on all routes, and
// routing.ErrTarget if a field that selects the route occurs twice.
func (g *generation) checkConfusable(x *exchange) error {
	for name := range g.protectedFields.confusable(x) {
		return fmt.Errorf("%w: some servers read another field as %s", errMalformed, name)
	}
	for _, name := range x.in.notPlain {
		if strings.HasPrefix(key.FoldHeader(name), "X_FORWARDED_") && !strings.HasPrefix(name, "X-Forwarded-") {
			return fmt.Errorf("%w: some servers read another field as X-Forwarded-*", errMalformed)
		}
	}
	for name := range x.route.keyFields.confusable(x) {
		x.extracted.confusable = append(x.extracted.confusable, key.HeaderField(name))
	}
	for _, name := range x.route.matchedFields {
		if len(x.in.header.Values(name)) > 1 {
			return fmt.Errorf("%w: %s selects the route, and is repeated", routing.ErrTarget, name)
		}
	}
	return nil
}

// Confused reports whether another field or parameter may be taken for the one at o. For a form
// parameter it reports whether the request has a form that may hold the parameter although no key
// of the route is read from forms.
func (x *exchange) Confused(o key.Origin) bool {
	if o.Source == key.Form {
		return slices.Contains(x.route.noFormBeside, o.Name) && x.HasForm()
	}
	return slices.Contains(x.extracted.confusable, o)
}

// findConfusableParams finds the query parameters that may be taken for others.
func (x *exchange) findConfusableParams() {
	var found []string
	for name := range x.extracted.query {
		found = x.route.queryNames.Confused(found, name)
	}
	for _, name := range found {
		x.extracted.confusable = append(x.extracted.confusable, key.Origin{Source: key.Query, Name: name})
	}
}

// matchedFields returns the fields whose values a route matches.
func matchedFields(m config.Match) []string {
	var names []string
	for name, value := range m.Headers {
		if value != "*" {
			names = append(names, http.CanonicalHeaderKey(name))
		}
	}
	return names
}

// errConnection reports that the Connection field names a field that must not be removed.
var errConnection = errors.New("Connection field not acceptable")

// checkConnection returns errConnection if the Connection field of the request names a field that its
// route reads: the upstream would not receive what was counted (RFC 9110 section 7.6.1). Other
// fields that are named are removed, as the RFC demands, before Weir sets its own.
func (g *generation) checkConnection(x *exchange) error {
	if f, ok := x.in.header.(*http1.Fields); ok && !f.Has(http1.Connection) { // as most; this is cheaper than a lookup by name
		return nil
	}
	options := []string{"keep-alive", "close", "upgrade", "te", "http2-settings"} // it may always have them
	for _, line := range x.in.header.Values("Connection") {
		for name := range strings.SplitSeq(line, ",") {
			name = strings.Trim(name, " \t")
			if name == "" || slices.Contains(options, strings.ToLower(name)) {
				continue
			}
			folded := key.FoldHeader(name)
			if x.route.readFields.has(folded) || g.clientFields.has(folded) {
				return fmt.Errorf("%w: it names %s, which is not a hop-by-hop field", errConnection, http.CanonicalHeaderKey(name))
			}
		}
	}
	return nil
}

// reservedTrailers returns a function that reports whether a trailer field may be taken for a header field
// that r reads or sets, or that is protected on all routes. Some frameworks merge trailers into the
// header, where they would bypass the limits. The function must not be called before g is complete.
func (g *generation) reservedTrailers(r *route) func(name string) bool {
	var set fieldNames
	set.add(slices.Collect(maps.Keys(r.rewrite.set))...)
	return func(name string) bool {
		folded := key.FoldHeader(name)
		return r.readFields.has(folded) || set.has(folded) || g.protectedFields.has(folded)
	}
}

const (
	// idLength is the number of characters of an id. Each has 5 random bits; an id is as hard to
	// guess as a 128-bit key.
	idLength = 26
	// idBatch is the number of ids that share one allocation.
	idBatch = 16
)

// requestIDs generates request ids. They come from a cryptographic generator that is seeded by the
// operating system; reading from the operating system for each id would take a system call. The
// zero value is ready to use. It is safe for concurrent use.
type requestIDs struct{ generators sync.Pool } // of *rand.ChaCha8

// batch returns unique ids of letters and the digits 2 to 7, each of idLength characters, one after the
// other. An exchange keeps those that it does not use for its next requests, so that a request
// seldom needs the generator.
func (r *requestIDs) batch() string {
	random, ok := r.generators.Get().(*rand.ChaCha8)
	if !ok {
		var seed [32]byte
		_, _ = crand.Read(seed[:]) // never fails
		random = rand.NewChaCha8(seed)
	}
	var text [idBatch * idLength]byte
	for i := 0; i < len(text); i += 8 { // eight characters at a time
		binary.LittleEndian.PutUint64(text[i:], idCharacters(random.Uint64()))
	}
	r.generators.Put(random)
	return string(text[:])
}

// idCharacters maps each byte of random to a character of an id by its lowest five bits: 0 to 25 to
// A to Z, 26 to 31 to 2 to 7. No addition carries from one byte into the next.
func idCharacters(random uint64) uint64 {
	const each = 0x0101010101010101 // a 1 in each byte
	values := random & (31 * each)
	digits := (values + (128-26)*each) >> 7 & each // a 1 in each byte with a value from 26
	return values + 'A'*each - digits*('A'+26-'2')
}
