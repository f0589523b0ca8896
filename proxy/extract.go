package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/reuse"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/directive"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/limit"
	routing "github.com/weir-proxy/weir/proxy/route"
	"github.com/weir-proxy/weir/proxy/usage"
)

// An extracted holds the keys of a request, and the data from which they are read.
type extracted struct {
	value key.Value // the last key that was read
	extraction
}

// An extraction is what is extracted besides the last key.
type extraction struct {
	query      url.Values
	queryRead  bool         // query has been parsed and its names have been checked
	body       *content     // nil unless a key is read from the body
	confusable []key.Origin // origins for which other names of the request may be taken
	keys       []limit.Key
	memos      []key.Memo     // of each of keys; they outlive the request
	found      []keyPlan      // what lists of rates and plans have about keys: the names alone
	plans      []keyPlan      // the plans of keys under limits that have plans
	assigned   *directive.Set // the plans that operators have assigned; nil if there are none
	asked      []byte         // for the log: what limits reserve for
	logged     lineKeys       // of a Replay: the keys that the log has instead of values
	unknown    []*limit.Limit // of a Replay: the limits that are skipped, because the log lacks what they read
	unlisted   []*key.Spec    // of a Replay: the keys of the lists that are skipped
}

// reset makes e what was extracted of no request, with the memory that it names.
func (e *extracted) reset() {
	e.value.Reset()
	confusable, keys, memos, found := reuse.Memory(e.confusable), reuse.Memory(e.keys), e.memos, reuse.Memory(e.found)
	plans, unknown, unlisted, asked := reuse.Memory(e.plans), reuse.Memory(e.unknown), reuse.Memory(e.unlisted), reuse.Memory(e.asked)
	e.extraction = extraction{}
	e.confusable, e.keys, e.memos, e.found, e.plans, e.unknown, e.unlisted, e.asked = confusable, keys, memos, found, plans, unknown, unlisted, asked
}

// memo returns the Memo of the last key.
func (e *extracted) memo() *key.Memo {
	for len(e.memos) < len(e.keys) {
		e.memos = append(e.memos, key.Memo{})
	}
	return &e.memos[len(e.keys)-1]
}

// extract makes the claims of the request: one for each window of each limit of its route, under
// the key that the request has. A key is extracted once, whatever the number of limits that use it.
func (g *generation) extract(x *exchange) error {
	x.KeyNamer, x.Solver, x.KeepsPermits = x, x, keepsPermits(x.request.Method)
	if x.Exempt = x.bypasses(); x.Exempt {
		return nil
	}
	if err := x.readQuery(); err != nil {
		return err
	}
	for _, l := range x.route.Active {
		err := g.claim(x, l)
		if err != nil && l.IsShadow() {
			x.Shadow.Errors = append(x.Shadow.Errors, l) // a limit in shadow mode refuses no request
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readQuery parses the query if the route needs it.
func (x *exchange) readQuery() error {
	if !x.route.readsQuery || x.extracted.queryRead || x.request.RawQuery == "" {
		return nil
	}
	if _, err := x.ParsedQuery(); err != nil {
		return err
	}
	x.extracted.queryRead = true
	x.findConfusableParams()
	return nil
}

// claim adds a claim for each window of l.
func (g *generation) claim(x *exchange, l *limit.Limit) error {
	if slices.Contains(x.extracted.unknown, l) {
		return nil
	}
	k, err := g.key(x, l.Key)
	if err != nil || k.Skip {
		return err
	}
	if x.Source == 0 {
		x.Source = g.source(x.client.network)
	}
	cost, err := g.permits(x, l)
	if err != nil || cost == 0 {
		return err
	}
	var value, previousValue limiter.Key
	if s := l.Distinct; s != nil {
		used, err := g.key(x, s)
		if err != nil || used.Skip {
			return err
		}
		value, previousValue = used.Key, used.Previous
	}
	if s := l.Subject(); s != nil {
		of, err := g.key(x, s)
		if err != nil {
			return err
		}
		value, previousValue = of.Key, of.Key // a note has the counts under both secrets; if the subject is missing there is none
	}
	if s := l.StepUp; s != nil { // whose token is bound to its key
		if _, err := g.key(x, s.Key); err != nil {
			return err
		}
	}
	windows := l.Windows
	if l.HasOtherRates() || len(x.extracted.found) > 0 {
		if windows, err = g.windows(x, l, k); err != nil {
			return err
		}
	}
	return x.Claim(l, windows, &limit.Use{Key: k, Cost: cost, Value: value, PreviousValue: previousValue, Rotates: g.config.Privacy.Rotates})
}

// permits returns how many permits of l the request takes, 0 if it is free.
func (g *generation) permits(x *exchange, l *limit.Limit) (cost int64, err error) {
	said, prices := l.Charges()
	price := key.Price{Amount: 1}
	if prices != nil {
		if price, _, err = g.price(x, prices); err != nil {
			return 0, err
		}
	}
	switch {
	case said.IsReserved():
		return g.reserved(x, l)
	case said != nil:
		cost, err = x.cost(said)
		return cost * price.Amount, err
	}
	return price.Amount, nil
}

// tokenWeights returns what tokens cost under l, and the most that a request reserves.
func (x *exchange) tokenWeights(l *limit.Limit) (w usage.Weights, most int64) {
	var price key.Price
	if _, prices := l.Charges(); prices != nil {
		price, _, _ = x.generation.price(x, prices) // was found before
	}
	return l.Weights(price)
}

// price returns what the number or the model of the request costs. found is false if the list has no price for it, or
// the request has none; then it is the dearest.
func (g *generation) price(x *exchange, p *config.Prices) (price key.Price, found bool, err error) {
	if line := x.extracted.logged.line; line != "" {
		if price, found := line.price(p); found {
			return price, true, nil
		}
	}
	k, err := g.key(x, p.Key)
	if err != nil {
		return key.Price{}, false, err
	}
	price, found = k.Price(p)
	return price, found, nil
}

// source identifies a client's network; see limiter.Claim.
func (g *generation) source(network netip.Prefix) uint32 {
	return uint32(maphash.Comparable(g.shared.seed, network)) | 1 // never 0, which means no source
}

// cost returns the number of permits that the request takes; 1 if it does not say.
func (x *exchange) cost(c *config.Cost) (int64, error) {
	from := c.From[0].From
	if x.Confused(from) {
		return 0, fmt.Errorf("%s: %w: some servers read another name as this one", from, key.ErrAmbiguous)
	}
	if other, ok := from.Confused(); ok && x.Confused(other) {
		return 0, fmt.Errorf("%s: %w: the body is a form, in which some servers look for it too", from, key.ErrAmbiguous)
	}
	values := x.Header(from.Name)
	if from.Source == key.Query {
		values = x.Query(from.Name)
	}
	if len(values) == 0 {
		return 1, nil
	}
	if len(values) > 1 {
		return 0, fmt.Errorf("%s: %w", from, key.ErrAmbiguous)
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil || n < 1 || n > c.Max || values[0][0] == '+' || values[0][0] == '0' { // a leading 0 makes it octal for some servers
		return 0, fmt.Errorf("%s: %w: write a whole number from 1 to %d", from, limit.ErrCost, c.Max)
	}
	return n, nil
}

// Solution implements the solver of an admission. A token is accepted if it answers the challenge of l, for the key of this request.
func (x *exchange) Solution(l *limit.Limit) (use limiter.Claim, err error) {
	s := l.StepUp
	lines := x.Header(s.Header)
	switch len(lines) {
	case 0:
		return use, limit.ErrNoToken
	case 1:
	default:
		return use, errors.New(s.Header + " is repeated")
	}
	solved, err := s.Tokens.Solution(lines[0], s.MaxAge, cmp.Or(x.Decision.At, time.Now())) // a use is forgotten by the clock of the store
	if err != nil {
		return use, errors.New(key.TokenProblem(err))
	}
	if solved.Challenge != s.Challenge {
		return use, errors.New("the token is for another challenge")
	}
	own, err := x.generation.key(x, s.Key)
	if err != nil || own.Skip {
		return use, errors.New("the request has no " + s.Key.Name + " that a token could be for")
	}
	var v key.Value
	given := key.Input{Texts: map[string]string{s.Key.Name: solved.Subject}, IPv6Prefix: x.generation.config.ClientIP.IPv6Prefix}
	if _, err := s.Key.Read(given, &v); err != nil || x.generation.config.Privacy.Hash(v.Parts) != own.Key {
		return use, errors.New("the token is for another " + s.Key.Name)
	}
	return limiter.Claim{Limit: &x.generation.tokenUse, Key: limiter.KeyOf("token", solved.Challenge, solved.ID), Cost: 1, Source: x.Source}, nil
}

// key returns the key of the request for a key.Spec. It must not be changed.
func (g *generation) key(x *exchange, by *key.Spec) (*limit.Key, error) {
	for i := range x.extracted.keys {
		if k := &x.extracted.keys[i]; k.Spec == by {
			return k, nil
		}
	}
	if x.extracted.logged.line != "" {
		if k, found := x.extracted.logged.find(by); found {
			x.extracted.keys = append(x.extracted.keys, k)
			return &x.extracted.keys[len(x.extracted.keys)-1], nil
		}
	}
	value := &x.extracted.value
	if err := by.Extract(x, value); err != nil {
		return nil, err
	}
	n := len(x.extracted.keys)
	x.extracted.keys = slices.Grow(x.extracted.keys, 1)[:n+1]
	k := &x.extracted.keys[n]
	*k = limit.Key{} // in place: it is large
	k.Spec, k.Skip = by, value.Skip
	x.lookUp(by)
	if k.Skip {
		return k, nil
	}
	k.Text = value.Text()
	k.Number = value.Number()
	k.Key = x.extracted.memo().Hash(g.config.Privacy.HashSecret, value.Parts)
	if g.config.Privacy.Rotates {
		k.Previous, _ = g.config.Privacy.PreviousHash(value.Parts)
	}
	if len(x.route.newKeys) > 0 && slices.Contains(x.route.newKeys, by) {
		k.Unkeyed = config.Privacy{}.Hash(value.Parts)
	}
	if by.Sensitive {
		k.Masked = value.Shown()
	}
	return k, nil
}

// normalize parses the request target, and normalizes host and path to the form that
// is matched and forwarded.
func normalize(x *exchange) error {
	x.request.HTTPS = x.in.scheme == "https" || x.client.trustedPeer
	return x.request.Normalize()
}

// match sets the route of a request and the parameters of its path. A request that is refused may
// still have a route, for the log; see routing.Table.Find.
func (g *generation) match(x *exchange) error {
	r, err := g.table.Find(g.matchable(x))
	if r != nil {
		x.setRoute(r)
	}
	return err
}

// matchable returns the data of x by which it is matched.
func (g *generation) matchable(x *exchange) *routing.Request {
	x.request.Message = x
	if g.readsScheme {
		x.request.Scheme = x.scheme()
	}
	return &x.request
}

// keepsPermits reports whether requests with a method are refunded nothing, and reset no cooldown,
// whatever is answered: many servers answer it by themselves, without a look at the request.
func keepsPermits(method string) bool {
	switch method {
	case "GET", "POST", "PUT", "PATCH", "DELETE":
		return false
	}
	switch strings.ToUpper(method) { // as lenient servers read it
	case "OPTIONS", "HEAD", "TRACE":
		return true
	}
	return false
}
