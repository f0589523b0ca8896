package cli

import (
	"context"
	"sync"
	"time"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/admin"
)

const (
	// topKeys is the number of keys fetched for each limit.
	topKeys = 50
	// topTimeout bounds each fetch and each action.
	topTimeout = 10 * time.Second
)

// A topSource fetches the data of top and carries out its actions.
type topSource struct {
	client       admin.Client
	route, limit string // of keys; empty: all
	minutes      int
}

// A topData is what top shows.
type topData struct {
	at        time.Time
	minutes   int
	nodes     admin.Nodes
	leader    admin.Leadership
	limits    admin.Limits
	routes    admin.Routes
	top       admin.Top
	upstreams admin.Upstreams
	statistic admin.Statistics
}

// fetch fetches all data concurrently. It returns the first error.
func (s topSource) fetch(ctx context.Context) (topData, error) {
	ctx, cancel := context.WithTimeout(ctx, topTimeout)
	defer cancel()
	d := topData{minutes: s.minutes}
	all := []func() error{
		func() (err error) { d.nodes, err = s.client.Nodes(ctx); return },
		func() (err error) { d.leader, err = s.client.Leader(ctx); return },
		func() (err error) { d.limits, err = s.client.Limits(ctx); return },
		func() (err error) { d.routes, err = s.client.Routes(ctx); return },
		func() (err error) { d.upstreams, err = s.client.Upstreams(ctx); return },
		func() (err error) { d.statistic, err = s.client.Statistics(ctx, s.minutes); return },
		func() (err error) {
			d.top, err = s.client.TopOf(ctx, admin.TopQuery{Route: s.route, Limit: s.limit, Minutes: s.minutes, N: topKeys})
			return
		},
	}
	errs := make([]error, len(all))
	var asked sync.WaitGroup
	for i, ask := range all {
		asked.Go(func() { errs[i] = ask() })
	}
	asked.Wait()
	d.at = time.Now()
	for _, err := range errs {
		if err != nil {
			return topData{}, err
		}
	}
	return d, nil
}

// do changes a key, or looks it up if c has no action.
func (s topSource) do(ctx context.Context, c proxy.KeyChange) (topDone, error) {
	ctx, cancel := context.WithTimeout(ctx, topTimeout)
	defer cancel()
	if c.Action == "" {
		standing, err := s.client.Standing(ctx, c.KeyQuery)
		return topDone{limits: standing.Limits, notes: standing.Notes, at: standing.At}, err
	}
	r, err := s.client.Change(ctx, c)
	return topDone{limits: r.Changed, notes: r.Notes, at: r.At, changed: true, everywhere: r.Everywhere}, err
}

// A topDone is the state of a key after an action.
type topDone struct {
	limits     []proxy.LimitStanding
	notes      []string
	at         time.Time // by the store's clock
	changed    bool
	everywhere bool
}
