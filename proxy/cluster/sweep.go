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
	// DefaultGrace is how long the counts of a removed limit are kept, in case it
	// is added again.
	DefaultGrace = 10 * time.Minute
	// sweepInterval is the pause between two steps of a sweep.
	sweepInterval = 2 * time.Second
	// sweepScans is the number of SCAN calls of a step, and sweepCount their
	// COUNT: a call takes Redis well below a millisecond, and all of them less
	// than 1% of its time.
	sweepScans, sweepCount = 20, 250
	// allowanceTTL is how long an allowance is valid in a Redis Cluster.
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

// A Sweep is a garbage collection: it deletes the counts of limits that were removed from the
// configuration longer than a grace period ago. Such keys expire anyway, but those of a limit with a
// window of 365 days only after a year.
//
// Each step scans a bounded number of keys. Only keys that the store writes for
// such a limit under our prefix are deleted; a limit that is added again in the
// meantime, or is shared with Java programs, loses nothing. The sweep waits while
// a node serves an older configuration, because it may still count for the limit.
//
// On a single server, the deleting script itself checks the leader and the removed
// limits. In a Redis Cluster the keys are on other servers than this state: there
// an allowance is obtained first, and the deleting script refuses it after a
// second, by the clock of its server.
type Sweep struct {
	rdb    redis.UniversalClient
	prefix string
	grace  time.Duration
	fence  fence
	nodes  func(context.Context) ([]Member, error)

	sweep, allow, swept *redis.Script

	pass *pass // in progress; nil for none
}

// A pass is one scan of all keys.
type pass struct {
	term    Term
	limits  []string // whose keys are deleted
	servers []*redis.Client
	cursor  uint64 // SCAN cursor on the first of servers
	deleted int64  // keys deleted
}

// NewSweep returns the sweep of a cluster; nodes returns its live nodes.
func NewSweep(rdb redis.UniversalClient, prefix string, grace time.Duration, nodes func(context.Context) ([]Member, error)) *Sweep {
	p := prefix + ":{cluster}:"
	return &Sweep{
		rdb: rdb, prefix: prefix, grace: grace, nodes: nodes, fence: fence{rdb, p + "leader"},
		sweep: redis.NewScript(sweepScript), allow: fenced(allowScript), swept: fenced(sweptScript),
	}
}

// Task returns the leader task of the sweep.
func (s *Sweep) Task() Task { return Task{Name: "sweep", Every: sweepInterval, Run: s.step} }

func (s *Sweep) removed() string { return s.prefix + ":{cluster}:removed" }

// step continues the current pass, or starts one if there are removed limits.
func (s *Sweep) step(ctx context.Context, t Term) (string, error) {
	allowed, err := s.allowance(ctx, t)
	if err != nil || len(allowed.limits) == 0 {
		s.pass = nil
		return "", err
	}
	if same, err := s.allServeCurrent(ctx); err != nil || !same {
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

// scan scans the keys of one step.
func (s *Sweep) scan(ctx context.Context, t Term) (string, error) {
	p := s.pass
	for range sweepScans {
		keys, next, err := p.servers[0].Scan(ctx, p.cursor, s.prefix+":{"+strings.Repeat("?", 32)+"}:*", sweepCount).Result()
		if err != nil {
			return "", fmt.Errorf("look for keys of removed limits: %w", err)
		}
		gone, err := s.remove(ctx, t, keys)
		p.deleted += gone
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
	return fmt.Sprintf("deleted %d keys of %d removed limits so far", p.deleted, len(p.limits)), nil
}

// finish removes the limits whose keys are deleted from the list of removed
// limits.
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
	return fmt.Sprintf("deleted %d keys of %d removed limits", p.deleted, len(p.limits)), nil
}

// An allowance permits the deletion of the keys of some limits for a short
// time.
type allowance struct {
	until  string // by Redis's clock
	limits []string
	slots  bool // in a Redis Cluster: the keys of one slot at a time
}

// allowance returns the limits that were removed long enough ago.
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

// allServeCurrent reports whether all nodes serve the current configuration.
func (s *Sweep) allServeCurrent(ctx context.Context) (bool, error) {
	hash, err := s.rdb.HGet(ctx, s.prefix+":{cluster}:config", "hash").Result()
	if err != nil {
		return false, fmt.Errorf("read config: %w", err)
	}
	nodes, err := s.nodes(ctx)
	other := slices.ContainsFunc(nodes, func(m Member) bool { return m.Hash != hash })
	return len(nodes) > 0 && !other, err
}

// servers returns the servers to scan.
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
