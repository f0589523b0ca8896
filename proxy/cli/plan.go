package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/config"
)

const (
	// peeked is how many counts are looked at in one call.
	peeked = 50
	// named is how many keys of a limit are named.
	named = 5
)

// A plan is what would change if a running weir served something else.
type plan struct {
	Generation int64           `json:"generation"` // that is served
	Changes    []config.Change `json:"changes"`
	Restart    string          `json:"restart,omitempty"` // what only a restart can change
	Refused    []refusing      `json:"refused"`           // limits that would refuse keys now
	Looked     int             `json:"looked"`            // at so many counts
	Whole      bool            `json:"whole"`             // these are all that there are
	Unknown    string          `json:"unknown,omitempty"` // why counts were not looked at
}

// A refusing is a limit that would refuse some of the keys that have counts now.
type refusing struct {
	Limit string   `json:"limit"` // ROUTE.LIMIT:WINDOW
	Keys  int      `json:"keys"`
	Named []string `json:"named"` // beginnings of some of their hashes, as in the log
}

// plan tells what would change if b were served, and who would be refused now, by
// the counts that are in the store.
func (s *service) plan(ctx context.Context, b config.Bundle) (any, error) {
	_, c, err := s.unpack(b)
	if err != nil {
		return nil, err
	}
	number, now := s.proxy.Serving()
	p := plan{Generation: number, Changes: config.Compare(now, c), Refused: []refusing{}}
	next, err := s.proxy.Prepare(ctx, c)
	switch {
	case errors.Is(err, proxy.ErrRestart):
		p.Restart = err.Error()
		return p, nil
	case err != nil:
		return nil, err
	}
	defer next.Discard()
	if s.shared.node == nil {
		p.Unknown = "the store is memory, whose counts are not listed"
		return p, nil
	}
	if err := s.refusals(ctx, next.Limits(), &p); err != nil {
		p.Unknown = err.Error()
	}
	return p, nil
}

// refusals asks the store about every count that it has under these limits: what
// it would say of one more request.
func (s *service) refusals(ctx context.Context, limits []limiter.Limit, p *plan) error {
	byName, names := map[string]*limiter.Limit{}, map[string]bool{}
	for i, l := range limits {
		byName[l.Name], names[l.Name] = &limits[i], true
	}
	counts, whole, err := s.shared.node.Counted(ctx, names)
	if err != nil {
		return err
	}
	p.Whole = whole
	found := map[string]*refusing{}
	for len(counts) > 0 {
		some := counts[:min(peeked, len(counts))]
		counts = counts[len(some):]
		refused, err := s.peek(ctx, some, byName)
		if err != nil {
			return err
		}
		p.Looked += len(some)
		for _, c := range refused {
			r := found[c.Limit]
			if r == nil {
				r = &refusing{Limit: c.Limit}
				found[c.Limit] = r
			}
			if r.Keys++; len(r.Named) < named {
				r.Named = append(r.Named, c.Key.String()[:12])
			}
		}
	}
	for _, l := range limits { // in the order of the file
		if r := found[l.Name]; r != nil {
			p.Refused = append(p.Refused, *r)
		}
	}
	return nil
}

// peek returns those of counts whose next request would be refused.
func (s *service) peek(ctx context.Context, counts []cluster.CountedKey, limits map[string]*limiter.Limit) ([]cluster.CountedKey, error) {
	var claims []limiter.Claim
	for _, c := range counts {
		claims = append(claims, limiter.Claim{Limit: limits[c.Limit], Key: c.Key, Cost: 1})
	}
	var d limiter.Decision
	if err := s.shared.store.Peek(ctx, claims, &d); err != nil {
		return nil, fmt.Errorf("look at counts: %w", err)
	}
	var refused []cluster.CountedKey
	for i, o := range d.Outcomes {
		if !o.Allowed {
			refused = append(refused, counts[i])
		}
	}
	return refused, nil
}

// print tells people what would change.
func (p plan) print(out io.Writer) {
	for _, change := range p.Changes {
		fmt.Fprintln(out, change)
	}
	for _, r := range p.Refused {
		fmt.Fprintf(out, "%s would refuse %d keys now, such as %v\n", r.Limit, r.Keys, r.Named)
	}
	switch {
	case p.Restart != "":
		fmt.Fprintln(out, p.Restart)
	case p.Unknown != "":
		fmt.Fprintf(out, "who would be refused is not known: %s\n", p.Unknown)
	case p.Whole:
		fmt.Fprintf(out, "looked at all %d counts there are\n", p.Looked)
	default:
		fmt.Fprintf(out, "looked at %d counts; there are more\n", p.Looked)
	}
	fmt.Fprintf(out, "%d changes against generation %d\n", len(p.Changes), p.Generation)
}
