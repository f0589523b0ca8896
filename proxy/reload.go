package proxy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
)

// A Report says what a reload did.
type Report struct {
	Generation int64            `json:"generation"`
	Hash       string           `json:"hash"`
	Changed    bool             `json:"changed"` // false: the files say what is served already
	Warnings   []config.Problem `json:"-"`
	Alone      error            `json:"-"` // not nil: why the other nodes could not be asked
	Unready    error            `json:"-"` // not nil: what is served, but refuses some requests for now
	Took       time.Duration    `json:"-"`
}

// ErrRestart reports that a configuration changes what only a restart can
// change.
var ErrRestart = errors.New("needs a restart")

// Reload makes the proxy serve what its files say now. When it returns an error
// the proxy serves exactly what it served before; config.Problems tell what is
// wrong with the files.
func (p *Proxy) Reload(ctx context.Context) (Report, error) {
	p.reloading.Lock()
	defer p.reloading.Unlock()

	began := time.Now()
	now := p.current.Load()
	read, err := p.read(ctx)
	report := Report{Generation: now.number, Hash: now.config.Hash}
	if err == nil && (read.Sum != now.config.Sum || read.Tokens != nil) { // files with keys of tokens are not in the sum
		report, err = p.take(ctx, read)
	}
	report.Took = time.Since(began)
	p.metrics.reloaded(report, err)
	return report, err
}

// Rejoin agrees with the other nodes on what is served, if that could not be done
// when it was taken up. An error changes nothing.
func (p *Proxy) Rejoin(ctx context.Context) (Report, error) {
	p.reloading.Lock()
	defer p.reloading.Unlock()

	now := p.current.Load()
	if !p.unagreed {
		return Report{Generation: now.number, Hash: now.config.Hash}, nil
	}
	report, err := p.take(ctx, now.config)
	p.metrics.reloaded(report, err)
	return report, err
}

// take serves what was read; p.reloading is held.
func (p *Proxy) take(ctx context.Context, read *config.Config) (Report, error) {
	next, err := p.Prepare(ctx, read)
	if err != nil {
		return Report{}, err
	}
	err = p.agree(ctx, read, func(number int64) { p.swap(next, number) })
	if p.current.Load() != next.generation {
		next.Discard()
		return Report{}, fmt.Errorf("agree on config: %w", err)
	}
	p.unagreed = err != nil
	return Report{Generation: next.number, Hash: read.Hash, Changed: true, Warnings: read.Warnings, Alone: err, Unready: next.Unready}, nil
}

// A Prepared is a configuration that is ready to be served and is not served yet:
// nothing can go wrong with it any more. Exactly one of Install and Discard is
// called, once.
type Prepared struct {
	*generation
	proxy   *Proxy
	Unready error // not nil: it can be served, but refuses some requests for now
}

// Prepare makes c ready to be served, and changes nothing. Errors that wrap
// ErrRestart say that c changes what a running proxy cannot.
func (p *Proxy) Prepare(ctx context.Context, c *config.Config) (*Prepared, error) {
	if err := immutable(p.current.Load().config, c); err != nil {
		return nil, err
	}
	next, err := compile(c, p.lasting)
	if err != nil {
		return nil, fmt.Errorf("compile config: %w", err)
	}
	unready := next.warm(ctx)
	if unready != nil && !errors.Is(unready, key.ErrNoVerificationKeys) {
		next.leave()
		return nil, fmt.Errorf("warm: %w", unready)
	}
	return &Prepared{next, p, unready}, nil
}

// Config is what will be served.
func (r *Prepared) Config() *config.Config { return r.config }

// Limits are those that refuse what exceeds them and whose counts are this
// cluster's: not those that are shared with others' programs, or that count for
// each node by itself, or that differ by more than the key.
func (r *Prepared) Limits() []limiter.Limit { return r.counted }

// Install serves r, under that number, from now on. All nodes have agreed on it.
func (r *Prepared) Install(number int64) {
	r.proxy.reloading.Lock()
	defer r.proxy.reloading.Unlock()
	r.proxy.swap(r, number)
	r.proxy.unagreed = false
	r.proxy.metrics.reloaded(Report{Changed: true}, nil)
}

// Discard gives up what r holds.
func (r *Prepared) Discard() { r.leave() }

// swap is the moment from which next is served; p.reloading is held.
func (p *Proxy) swap(next *Prepared, number int64) {
	old := p.current.Load()
	next.number = number
	p.install(next.generation) // from here on nothing can fail
	p.metrics.generation.Set(float64(number))
	old.retire()
	old.leave() // the last of its requests closes it
}

// Serving is the number of the generation that serves, and its configuration.
func (p *Proxy) Serving() (number int64, c *config.Config) {
	g := p.current.Load()
	return g.number, g.config
}
