package proxy

import (
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/respond"
	routing "github.com/weir-proxy/weir/proxy/route"
	"github.com/weir-proxy/weir/proxy/upstream"
)

// An exchange carries what is known of one request on its way through the stages. It
// belongs to one goroutine. No stage between downstream and forward knows more of a
// request than this, so that all downstreams can share the stages.
type exchange struct {
	began      time.Time
	took       time.Duration // until the answer was written; not what is settled after it
	generation *generation   // that serves it

	// What the downstream brings.
	method    string
	authority string // as asked for: Host, or the authority of the target
	local     string // where the client has connected to, of a request without an authority
	target    string // as sent; tidy leaves the path of it
	proto     string // "HTTP/1.1"
	scheme    string // "http" or "https"
	header    fields
	length    int64    // of the body as announced; -1 for not
	odd       []string // names of fields that some servers may take for others: X_Phone, X.Phone
	unasked   []string // of OPTIONS: names of fields that no browser's preflight has
	carrier   carrier
	peer      netip.AddrPort
	fault     error // what is wrong with the request as HTTP

	// What the stages learn.
	id            string          // record: the request's id
	trusted       bool            // address: the peer is a trusted proxy
	client        netip.Addr      // address: who asks
	network       netip.Prefix    // address: the client as limits count it
	source        uint32          // extract: stands for network where room for keys is shared
	rawQuery      string          // tidy: as sent, after the question mark
	host          string          // tidy: lower case, without port
	path          string          // tidy: the one spelling that is matched and forwarded
	route         *route          // match
	matched       routing.Request // match: what its route was found by, and the parameters of its path
	list          *config.List    // lists: the one that decided what is done with the request
	claims        []limiter.Claim
	windows       []int           // extract: windows[i] is the window of the route that claims[i] asks for
	shadows       []limiter.Claim // extract: those of limits in shadow mode
	shadowWindows []int           // extract: as windows, for shadows
	shadowErrors  []*limit        // extract: in shadow mode, and would have refused before any store
	redact        *redactor       // serve: what of it may be logged
	takings       []taking        // admit: what was taken, and of whom
	query         url.Values
	read          bool            // extract: the names in query are looked through
	confused      []key.Origin    // match, extract: what other names of the request may be taken for
	value         key.Value       // extract: the key last read
	content       *content        // extract: the body, if a key was read from it
	newKeys       string          // new keys: what was said of too many new keys; empty if nothing
	idempotency   []limiter.Claim // to be the first of its kind; none without an idempotency key
	keys          []extractedKey  // extract: the keys made so far
	overridden    []overridden    // extract: limits in which one of them stands hashed

	decided bool // admit: decision is about claims

	// What was decided and what came of it.
	decision    limiter.Decision
	fallback    string           // admit: the policy that decided while the store could not
	asked       bool             // forward: the upstream asked not to count this request
	back        []limiter.Claim  // settle: what is given back
	all         []limiter.Claim  // admit: claims and once
	exempt      bool             // extract: no limit is asked about it
	repeated    bool             // admit: it repeats a request that was counted
	rotates     bool             // extract: claims are there twice, under two keys
	waited      bool             // admit: it stood in line for its turn
	waitTook    time.Duration    // admit: for so long
	streamReset bool             // the client wants no answer any more, and has kept its connection
	banned      bool             // admit: this refusal was one too many
	shadowed    []refusal        // admit: what limits in shadow mode would have refused
	returned    bool             // settle: something was given back
	forwarded   bool             // forward: what came of it is known
	of          []int            // refuse: as windows, but the policies of the quota
	status      int              // the status that the client sees
	bytes       int64            // of the body that the client was sent
	err         error            // for the log
	asking      upstream.Request // forward: what the upstream is asked
	result      upstream.Result

	trace        *tracing      // record: nil where nothing is traced
	upstreamTook time.Duration // forward: until the answer was passed on or given up
	userAgent    string        // finish: as the log shows it
	referer      string        // finish: as the log shows it

	memory respond.Memory                      // what is told of the quota is made in
	edit   func(status int, h upstream.Header) // onHeader, made once
}

// A carrier hands out the body of its request: the downstream's.
type carrier interface {
	// whole reads the body to its end and keeps it to be forwarded as it came.
	// A body of more than so many bytes is an error that wraps
	// key.ErrBodyTooLarge.
	whole(most int64) ([]byte, error)
}

// A content is a body that was read, or why it could not be.
type content struct {
	bytes []byte
	err   error
}

// fields looks up a header; http.Header is one. Names are in canonical form.
type fields interface {
	Values(name string) []string
}

// Header returns all values of a field.
func (x *exchange) Header(name string) []string { return x.header.Values(name) }

// Query returns all values of a query parameter. A query that can be read in two
// ways has none: extract refuses it before.
func (x *exchange) Query(name string) []string { return x.query[name] }

// Param returns a parameter of the path, decoded.
func (x *exchange) Param(name string) string { return x.matched.Param(name) }

// Client returns the client as limits count it.
func (x *exchange) Client() netip.Prefix { return x.network }

// Host returns the host that was asked for, in the spelling that is matched.
func (x *exchange) Host() string { return x.host }

// Method returns the method.
func (x *exchange) Method() string { return x.method }

// Body returns the body, which is read once for all keys.
func (x *exchange) Body() (key.Body, error) {
	if x.content == nil {
		most := x.route.maxBody
		if most == 0 {
			most = keyBody
		}
		x.content = new(content)
		x.content.bytes, x.content.err = x.carrier.whole(most)
	}
	kind := ""
	if types := x.Header("Content-Type"); len(types) > 0 {
		kind = types[0]
	}
	return key.Body{Type: kind, Bytes: x.content.bytes}, x.content.err
}

// reset makes x fit for the next request and keeps what it has allocated.
func (x *exchange) reset() {
	kept := exchange{matched: x.matched, claims: x.claims[:0], windows: x.windows[:0], shadows: x.shadows[:0], shadowWindows: x.shadowWindows[:0], of: x.of[:0],
		takings: x.takings[:0], shadowErrors: x.shadowErrors[:0], shadowed: x.shadowed[:0], back: x.back[:0], all: x.all[:0]}
	kept.decision.Outcomes = x.decision.Outcomes[:0]
	kept.keys, kept.odd, kept.confused = x.keys[:0], x.odd[:0], x.confused[:0]
	kept.overridden = x.overridden[:0]
	kept.matched.Reset()
	kept.value = x.value
	kept.value.Reset()
	kept.memory, kept.edit = x.memory, x.edit
	kept.memory.Discard(http1.Discard)
	*x = kept
}

func newExchange() any {
	x := &exchange{header: http.Header(nil)}
	x.edit = x.onHeader
	return x
}

// window is the window that claims[i] asks for.
func (x *exchange) window(i int) *window { return x.route.windows[x.windows[i]] }

// refusing is the first claim that a limit refused.
func (x *exchange) refusing() (i int, found bool) {
	i = slices.IndexFunc(x.decision.Outcomes, func(o limiter.Outcome) bool { return !o.Allowed })
	return i, i >= 0 && !x.decision.Allowed
}
