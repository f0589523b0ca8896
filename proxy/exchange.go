package proxy

import (
	"net/netip"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
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
	list            *config.List    // lists: the list that refused the request or let it bypass limits
	extracted       extracted       // extract: the keys, and the data from which they are read
	newKeys         string          // new keys: the result for too many of them; empty if there were not
	admission                       // extract, admit, settle: the claims on limits and the decision
	forwarded       forwardRequest  // forward: the forwarded request
	outcome         forwardOutcome  // forward: its result
	rateLimitFields rateLimitFields // refuse, forward: the rate limit fields of the response
	response        clientResponse  // downstream: the response that was sent
	trace           *tracing        // record: the spans; nil if there is no tracing

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
	descriptor   routing.Descriptor // instead of a request; see DecideDescriptors
	rate         *limiter.Rate      // of the descriptor; nil if it has none
	parseErr     error              // error in the HTTP syntax of the request

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
	x.in = inbound{notPlain: x.in.notPlain[:0]}
	x.request.Reset()
	x.client, x.list = client{}, nil
	x.extracted.reset()
	x.newKeys = ""
	x.admission.reset()
	x.forwarded.request.Reset()
	x.outcome = forwardOutcome{}
	x.rateLimitFields.reset()
	x.response, x.trace = clientResponse{}, nil
}

func newExchange() any {
	x := &exchange{in: inbound{header: noFields{}}}
	x.forwarded.edit = x.onHeader
	return x
}
