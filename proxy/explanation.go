package proxy

import "net/netip"

// An ExplainRequest is a request to be explained. It need not exist.
type ExplainRequest struct {
	Method string `json:"method"`
	// URL is absolute, or the path and query of one: then the host is the field Host of
	// Header, or localhost.
	URL    string              `json:"url"`
	Header map[string][]string `json:"header,omitempty"`
	Body   string              `json:"body,omitempty"`
	// Client is the other end of the connection; 127.0.0.1 when it is left out. Behind a
	// trusted proxy the header says who the client is, as always.
	Client netip.Addr `json:"client,omitzero"`
}

// An Explanation says what would be done with a request, and why. Keys that are
// sensitive are masked, as in the log.
type Explanation struct {
	Method string `json:"method"`
	Scheme string `json:"scheme"`
	Host   string `json:"host"`
	Path   string `json:"path"`   // in the one spelling that is matched and forwarded
	Client string `json:"client"` // behind trusted proxies
	// Generation is the number of the configuration that was asked.
	Generation int64             `json:"generation"`
	Stages     []ExplainedStage  `json:"stages"`
	Route      *ExplainedRoute   `json:"route,omitempty"` // none when no route matches
	Others     []ExplainedOther  `json:"others"`          // the nearest of the other routes
	Keys       []ExplainedKey    `json:"keys"`
	Lists      []ExplainedList   `json:"lists"`
	Limits     []ExplainedLimit  `json:"limits"`
	Decision   ExplainedDecision `json:"decision"`
	// Answer is what Weir would answer by itself: a refusal, a redirect or a fixed
	// response. Upstream is what would be forwarded. One of the two is there.
	Answer   *ExplainedAnswer   `json:"answer,omitempty"`
	Upstream *ExplainedUpstream `json:"upstream,omitempty"`
}

// The results of a stage.
const (
	StagePassed  = "passed"
	StageRefused = "refused"
	StageSkipped = "skipped" // there is nothing to do, or a stage before has refused
)

// An ExplainedStage is what came of one stage.
type ExplainedStage struct {
	Name   string `json:"name"`
	Result string `json:"result"`
	Detail string `json:"detail,omitempty"`
}

// An ExplainedRoute is the route that was taken.
type ExplainedRoute struct {
	Name     string   `json:"name"`
	Position string   `json:"position"` // file:line:column
	Host     string   `json:"host,omitempty"`
	Methods  []string `json:"methods,omitempty"`
	Path     string   `json:"path"`
	// Lenient says that the request matches another route, or none with limits, and is
	// taken for this one because a lenient upstream would take it so.
	Lenient bool `json:"lenient,omitempty"`
}

// An ExplainedOther is a route that was not taken.
type ExplainedOther struct {
	Name     string `json:"name"`
	Position string `json:"position"`
	// Because has one entry for each matcher that fails: host, method, path, header,
	// query; or that the route taken goes before this one.
	Because []string `json:"because"`
}

// An ExplainedKey is a key that the route reads.
type ExplainedKey struct {
	Name string `json:"name"`
	From string `json:"from"`
	// Value is the normalized text, masked where the key is sensitive: "phone=+86138****8000".
	Value string `json:"value,omitempty"`
	// Hash is what stands for the key in the log.
	Hash    string `json:"hash,omitempty"`
	Skipped bool   `json:"skipped,omitempty"` // missing, and what asks for it does not apply
	Error   string `json:"error,omitempty"`   // why there is no key; the request is refused then
}

// An ExplainedList is a list of the route.
type ExplainedList struct {
	Name   string `json:"name"`
	Key    string `json:"key"`
	Action string `json:"action"`
	Hit    bool   `json:"hit"`
}

// An ExplainedLimit is a limit of the route and what it would say.
type ExplainedLimit struct {
	Name           string `json:"name"`
	Key            string `json:"key"` // its name
	Value          string `json:"value,omitempty"`
	Distinct       string `json:"distinct,omitempty"` // name of the key whose values are counted
	Algorithm      string `json:"algorithm"`
	Mode           string `json:"mode"`
	Scope          string `json:"scope"`
	OnStoreFailure string `json:"on_store_failure"`
	Exposed        bool   `json:"expose"`
	Cost           int64  `json:"cost"`
	Wait           string `json:"wait,omitempty"`    // how long a request may stand in line
	Penalty        string `json:"penalty,omitempty"` // what refusals lead to
	Shared         string `json:"redisson,omitempty"`
	Override       bool   `json:"override,omitempty"` // this key has rates of its own
	// Asked is false for a limit that does not apply; Reason says why.
	Asked   bool              `json:"asked"`
	Reason  string            `json:"reason,omitempty"`
	Allowed bool              `json:"allowed"`
	Windows []ExplainedWindow `json:"windows"`
}

// An ExplainedWindow is one rate of a limit.
type ExplainedWindow struct {
	Rate      string `json:"rate"`
	Allowed   bool   `json:"allowed"`
	Remaining int64  `json:"remaining"` // before this request
	Most      int64  `json:"most"`
	WaitMS    int64  `json:"wait_ms,omitempty"` // until it would pass
	Banned    bool   `json:"banned,omitempty"`
}

// An ExplainedDecision is what the limits that are enforced say together.
type ExplainedDecision struct {
	// Asked is false when no limit is asked; Reason says why.
	Asked   bool   `json:"asked"`
	Reason  string `json:"reason,omitempty"`
	Allowed bool   `json:"allowed"`
	WaitMS  int64  `json:"wait_ms,omitempty"`
	Store   string `json:"store"` // memory or redis
	// Slots is how many cluster slots the limits of this decision may lie in; above 1
	// it is made in two phases: each slot reserves, and when one refuses the others get
	// back what they have reserved.
	Slots int `json:"slots"`
	// Repeat says that the request repeats one that was counted, and does not count.
	Repeat bool `json:"repeat,omitempty"`
}

// An ExplainedAnswer is a response of Weir's own.
type ExplainedAnswer struct {
	Status int                 `json:"status"`
	Why    string              `json:"why,omitempty"` // as the log says it
	Header map[string][]string `json:"header"`
	Body   string              `json:"body,omitempty"`
}

// An ExplainedUpstream is what would be forwarded, and where.
type ExplainedUpstream struct {
	Name    string   `json:"name"`
	Echo    bool     `json:"echo,omitempty"`
	Targets []string `json:"targets"`
	Balance string   `json:"balance"`
	Method  string   `json:"method"`
	Target  string   `json:"target"` // path and query, as rewritten
	Host    string   `json:"host"`
	// Header has all that is sent, Set the names of those fields that the client did
	// not send so, and Removed of those that it sent and that are not forwarded. Weir
	// makes a request id of its own for each request.
	Header  map[string][]string `json:"header"`
	Set     []string            `json:"set"`
	Removed []string            `json:"removed"`
}
