package proxy

import (
	"net/netip"
	"time"

	"github.com/weir-proxy/weir/proxy/config"
	routing "github.com/weir-proxy/weir/proxy/route"
)

// An exchange carries what is known of one request on its way through the stages. It
// belongs to one goroutine. No stage between downstream and forward knows more of a
// request than this, so that all downstreams can share the stages.
type exchange struct {
	generation *generation // that serves it
	id         string      // record: the request's id
	began      time.Time
	took       time.Duration // settle: until the response was written; not what is settled after it

	in        inbound         // downstream: what has come in
	request   routing.Request // downstream, normalize, match: where it goes, and what its route was found by
	client    client          // address: who asks
	list      *config.List    // lists: the one that decided what is done with the request
	extracted extracted       // extract: the keys, and what they are read from
	newKeys   string          // new keys: what was said of too many of them; empty if nothing
	admission                 // extract, admit, settle: what is asked of limits, and what comes of it
	sending   forwardRequest  // forward: what the upstream is asked
	outcome   forwardOutcome  // forward: what came of that
	told      quotaResponse   // refuse, forward: what the client is told of its quota
	answer    answer          // downstream: what the client was sent
	trace     *tracing        // record: nil where nothing is traced

	owned bool // its downstream keeps it for the next request
}

// An inbound is a request as its downstream brings it, but for where it goes.
type inbound struct {
	scheme  string // "http" or "https"
	peer    netip.AddrPort
	header  fields
	odd     []string // names of fields that some servers may take for others: X_Phone, X.Phone
	unasked []string // of OPTIONS: names of fields that no browser's preflight has
	length  int64    // of the body as announced; -1 for not
	body    bodyReader
	fault   error // what is wrong with the request as HTTP

	userAgent, referer string // finish: as the log shows them
}

func (in *inbound) reset() { *in = inbound{odd: in.odd[:0]} }

// A response is what the client was sent.
type answer struct {
	status      int   // that the client sees
	bytes       int64 // of the body
	streamReset bool  // the client wants no response any more, and has kept its connection
}

// A bodyReader hands out the body of its request: the downstream's.
type bodyReader interface {
	// readAll reads the body to its end and keeps it to be forwarded as it came.
	// A body of more than so many bytes is an error that wraps
	// key.ErrBodyTooLarge.
	readAll(most int64) ([]byte, error)
}

// fields looks up a header, *http1.Fields without allocating. Names are in canonical
// form.
type fields interface {
	Values(name string) []string
}

// noFields is the header of what is no request, or is one no more.
type noFields struct{}

// Values implements fields.
func (noFields) Values(string) []string { return nil }

// reset makes x fit for the next request and keeps what it has allocated. It is done in
// place: a new exchange beside it would be copied twice, over a cold stack.
func (x *exchange) reset() {
	x.generation, x.id, x.began, x.took = nil, "", time.Time{}, 0
	x.in.reset()
	x.request.Reset()
	x.client, x.list = client{}, nil
	x.extracted.reset()
	x.newKeys = ""
	x.admission.reset()
	x.sending.reset()
	x.outcome = forwardOutcome{}
	x.told.reset()
	x.answer, x.trace = answer{}, nil
}

func newExchange() any {
	x := &exchange{in: inbound{header: noFields{}}}
	x.sending.edit = x.onHeader
	return x
}
