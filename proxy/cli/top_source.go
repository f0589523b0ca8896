package cli

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/admin"
)

// topTimeout bounds each fetch and each action.
const topTimeout = 10 * time.Second

// A topSource fetches the data of top and carries out its actions.
type topSource struct {
	client       admin.Client
	route, limit string // of keys; empty: all
	minutes      int
	keys         int // of each limit
}

// A topData is what top shows, and the output of top --json.
type topData struct {
	At        time.Time        `json:"at"`
	Minutes   int              `json:"minutes"`
	Away      string           `json:"redis_unreachable,omitempty"` // why only the node that was asked is known; empty if all are
	Nodes     admin.Nodes      `json:"nodes"`
	Leader    admin.Leadership `json:"leader"`
	Statistic admin.Statistics `json:"statistics"`
	Limits    admin.Limits     `json:"limits"`
	Routes    admin.Routes     `json:"routes"`
	Upstreams admin.Upstreams  `json:"upstreams"`
	Top       admin.Top        `json:"top"`
}

// fetch fetches all data concurrently. It returns the first error. While the node that is asked cannot
// reach Redis, the nodes, the leader and the statistics are empty.
func (s topSource) fetch(ctx context.Context) (topData, error) {
	ctx, cancel := context.WithTimeout(ctx, topTimeout)
	defer cancel()
	d := topData{Minutes: s.minutes}
	all := []func() error{
		func() (err error) { d.Nodes, err = s.client.Nodes(ctx); return },
		func() (err error) { d.Leader, err = s.client.Leader(ctx); return },
		func() (err error) { d.Statistic, err = s.client.Statistics(ctx, s.minutes); return },
		func() (err error) { d.Limits, err = s.client.Limits(ctx); return },
		func() (err error) { d.Routes, err = s.client.Routes(ctx); return },
		func() (err error) { d.Upstreams, err = s.client.Upstreams(ctx); return },
		func() (err error) {
			d.Top, err = s.client.TopOf(ctx, admin.TopQuery{Route: s.route, Limit: s.limit, Minutes: s.minutes, N: s.keys})
			return
		},
	}
	const fromRedis = 3 // the first ones
	errs := make([]error, len(all))
	var asked sync.WaitGroup
	for i, ask := range all {
		asked.Go(func() { errs[i] = ask() })
	}
	asked.Wait()
	d.At = time.Now()
	for i, err := range errs {
		switch {
		case err == nil:
		case i < fromRedis && isUnavailable(err):
			d.Away = cmp.Or(d.Away, err.Error())
		default:
			return topData{}, err
		}
	}
	if d.Away != "" {
		d.Nodes, d.Leader, d.Statistic = admin.Nodes{}, admin.Leadership{}, admin.Statistics{}
	}
	return d, nil
}

// isUnavailable reports whether a node answered that it cannot know, because the store is unreachable.
func isUnavailable(err error) bool {
	var p *admin.Problem
	return errors.As(err, &p) && p.Status == http.StatusServiceUnavailable
}

// do changes a key, or looks it up if c has no action.
func (s topSource) do(ctx context.Context, c proxy.KeyChange) (topDone, error) {
	ctx, cancel := context.WithTimeout(ctx, topTimeout)
	defer cancel()
	if c.Action == "" {
		standing, err := s.client.Standing(ctx, c.KeyQuery)
		return topDone{limits: standing.Limits, notes: standing.Notes, at: standing.At, now: standing.Verdict().Text}, err
	}
	r, err := s.client.Change(ctx, c)
	return topDone{limits: r.Changed, notes: r.Notes, at: r.At, now: r.Now.Text, changed: true, where: r.Where()}, err
}

// A topDone is the state of a key after an action.
type topDone struct {
	limits  []proxy.LimitStanding
	notes   []string
	at      time.Time // by the store's clock
	now     string    // whether the key is refused
	changed bool
	where   string
}
