package cluster

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// DefaultGrace is how long what was counted for a limit is kept when the limit
	// is gone, for those who want it back.
	DefaultGrace = 10 * time.Minute
	// sweepInterval is the pause between two steps of a sweep.
	sweepInterval = 2 * time.Second
	// sweepScans is how many calls of SCAN a step makes, and sweepCount how many
	// keys each may look at: well below a millisecond of Redis's time a call, and
	// less than a hundredth of it in all.
	sweepScans, sweepCount = 20, 250
	// allowanceTTL is how long one leave to delete is good for, in a cluster.
	allowanceTTL = time.Second
)

var (
	//go:embed sweep.lua
	sweepScript string
	//go:embed allow.lua
	allowScript string
	//go:embed swept.lua
	sweptScript string
)

// A Sweep is a garbage collection: it deletes what was counted for limits that have left the configuration
// for longer than a grace. Such keys expire by themselves, but those of a limit of
// 365 days take a year.
//
// It looks at a bounded number of keys at a time. Only keys that the store writes
// for such a limit under our prefix are deleted; a limit that is defined again in
// the meantime, or that Java programs share, loses nothing. It waits while a node
// serves another configuration than the last: that one may still count for the
// limit.
//
// On one server, the deletion itself looks who leads and which limits are gone. In
// a Redis Cluster the keys lie on other servers than that knowledge: there it is
// asked first, and the deletion refuses once a second has passed since by the
// clock of its own server.
type Sweep struct {
	rdb    redis.UniversalClient
	prefix string
	grace  time.Duration
	fence  fence
	nodes  func(context.Context) ([]Member, error)

	sweep, allow, swept *redis.Script

	pass *pass // under way; nil for none
}

// A pass is one look at all keys.
type pass struct {
	term    Term
	limits  []string // whose keys are to go
	servers []*redis.Client
	cursor  uint64 // on the first of servers
	gone    int64  // keys deleted
}

// NewSweep makes the sweep of a cluster, whose nodes the function tells.
func NewSweep(rdb redis.UniversalClient, prefix string, grace time.Duration, nodes func(context.Context) ([]Member, error)) *Sweep {
	p := prefix + ":{cluster}:"
	return &Sweep{
		rdb: rdb, prefix: prefix, grace: grace, nodes: nodes, fence: fence{rdb, p + "leader"},
		sweep: redis.NewScript(sweepScript), allow: fenced(allowScript), swept: fenced(sweptScript),
	}
}

// Task goes on with the sweep.
func (s *Sweep) Task() Task { return Task{Name: "sweep", Every: sweepInterval, Run: s.step} }

func (s *Sweep) removed() string { return s.prefix + ":{cluster}:removed" }

// step begins a pass when there is something to sweep, or goes on with it.
func (s *Sweep) step(ctx context.Context, t Term) (string, error) {
	allowed, err := s.allowance(ctx, t)
	if err != nil || len(allowed.limits) == 0 {
		s.pass = nil
		return "", err
	}
	if same, err := s.agreed(ctx); err != nil || !same {
		return "waits until all nodes serve the last configuration", err
	}
	if s.pass == nil || s.pass.term != t {
		servers, err := s.servers(ctx)
		if err != nil {
			return "", err
		}
		s.pass = &pass{term: t, limits: allowed.limits, servers: servers}
	}
	return s.scan(ctx, t)
}

// scan looks at as many keys as one step may.
func (s *Sweep) scan(ctx context.Context, t Term) (string, error) {
	p := s.pass
	for range sweepScans {
		keys, next, err := p.servers[0].Scan(ctx, p.cursor, s.prefix+":{"+strings.Repeat("?", 32)+"}:*", sweepCount).Result()
		if err != nil {
			return "", fmt.Errorf("look for keys of removed limits: %w", err)
		}
		gone, err := s.remove(ctx, t, keys)
		p.gone += gone
		if err != nil {
			return "", err
		}
		if p.cursor = next; next != 0 {
			continue
		}
		if p.servers = p.servers[1:]; len(p.servers) == 0 {
			return s.finish(ctx, t)
		}
	}
	return fmt.Sprintf("deleted %d keys of %d removed limits so far", p.gone, len(p.limits)), nil
}

// finish forgets the limits whose keys are gone.
func (s *Sweep) finish(ctx context.Context, t Term) (string, error) {
	p := s.pass
	s.pass = nil
	args := []any{s.grace.Milliseconds()}
	for _, name := range p.limits {
		args = append(args, name)
	}
	if _, err := s.fence.run(ctx, s.swept, t, []string{s.removed()}, args...); err != nil {
		return "", fmt.Errorf("forget removed limits: %w", err)
	}
	return fmt.Sprintf("deleted %d keys of %d removed limits", p.gone, len(p.limits)), nil
}

// An allowance is for how long the keys of which limits may be deleted.
type allowance struct {
	until  string // by Redis's clock
	limits []string
	slots  bool // a cluster's: the keys of one slot at a time, and of limits only
}

// allowance asks which limits are gone for long enough.
func (s *Sweep) allowance(ctx context.Context, t Term) (allowance, error) {
	reply, err := s.fence.run(ctx, s.allow, t, []string{s.removed()}, allowanceTTL.Milliseconds(), s.grace.Milliseconds())
	if err != nil {
		return allowance{}, fmt.Errorf("read removed limits: %w", err)
	}
	parts, ok := reply.([]any)
	if !ok || len(parts) != 2 {
		return allowance{}, fmt.Errorf("read removed limits: %w: %v", errReply, reply)
	}
	var a allowance
	a.until, _ = parts[0].(string)
	names, _ := parts[1].([]any)
	for _, name := range names {
		text, _ := name.(string)
		a.limits = append(a.limits, text)
	}
	return a, nil
}

// agreed reports whether all nodes serve the configuration taken up last.
func (s *Sweep) agreed(ctx context.Context) (bool, error) {
	hash, err := s.rdb.HGet(ctx, s.prefix+":{cluster}:config", "hash").Result()
	if err != nil {
		return false, fmt.Errorf("read config: %w", err)
	}
	nodes, err := s.nodes(ctx)
	other := slices.ContainsFunc(nodes, func(m Member) bool { return m.Hash != hash })
	return len(nodes) > 0 && !other, err
}

// servers are those whose keys are looked at.
func (s *Sweep) servers(ctx context.Context) ([]*redis.Client, error) {
	switch rdb := s.rdb.(type) {
	case *redis.Client:
		return []*redis.Client{rdb}, nil
	case *redis.ClusterClient:
		var mu sync.Mutex
		var all []*redis.Client
		err := rdb.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, c)
			return nil
		})
		if err != nil || len(all) == 0 {
			return nil, fmt.Errorf("find masters: %w", err)
		}
		return all, nil
	}
	return nil, fmt.Errorf("find masters: %w: a client of the type %T", errReply, s.rdb)
}
