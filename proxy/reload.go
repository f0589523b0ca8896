package proxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/limit"
)

// A Report is the result of a reload.
type Report struct {
	Generation int64            `json:"generation"`
	Hash       string           `json:"hash"`
	Changed    bool             `json:"changed"` // false if the files have not changed
	Warnings   []config.Problem `json:"-"`
	AgreeErr   error            `json:"-"` // if not nil, why the other nodes could not be reached
	Unready    error            `json:"-"` // if not nil, why some requests are refused for now
	Took       time.Duration    `json:"-"`
}

// ErrRestart reports that a configuration change takes effect only after a restart.
var ErrRestart = errors.New("needs a restart")

// Reload reads the configuration and serves it. If it returns an error, the proxy serves exactly
// what it served before. An error that contains config.Problems describes what is wrong with the
// files.
func (p *Proxy) Reload(ctx context.Context) (Report, error) {
	p.reloading.Lock()
	defer p.reloading.Unlock()

	began := time.Now()
	now := p.current.Load()
	read, err := p.read(ctx)
	report := Report{Generation: now.number, Hash: now.config.Hash}
	if err == nil && (read.Sum != now.config.Sum || len(read.Tokens) > 0) { // the sum does not cover files with keys of tokens
		report, err = p.adopt(ctx, read)
	}
	report.Took = time.Since(began)
	p.metrics.countReload(report, err)
	return report, err
}

// Rejoin agrees with the other nodes on the current configuration, if they could not be reached
// when it was adopted. An error changes nothing.
func (p *Proxy) Rejoin(ctx context.Context) (Report, error) {
	p.reloading.Lock()
	defer p.reloading.Unlock()

	now := p.current.Load()
	if !p.needsRejoin {
		return Report{Generation: now.number, Hash: now.config.Hash}, nil
	}
	report, err := p.adopt(ctx, now.config)
	p.metrics.countReload(report, err)
	return report, err
}

// adopt compiles and serves read. p.reloading must be held.
func (p *Proxy) adopt(ctx context.Context, read *config.Config) (Report, error) {
	was := p.current.Load().config
	next, err := p.Prepare(ctx, read)
	if err != nil {
		return Report{}, err
	}
	if p.agree == nil {
		p.swap(next, p.current.Load().number+1)
	} else {
		err = p.agree(ctx, read, func(number int64) { p.swap(next, number) })
	}
	if p.current.Load() != next.generation {
		next.Discard()
		return Report{}, fmt.Errorf("agree on config: %w", err)
	}
	p.needsRejoin = err != nil
	warnings := append(config.Restarts(was, read), read.Warnings...)
	return Report{Generation: next.number, Hash: read.Hash, Changed: true, Warnings: warnings, AgreeErr: err, Unready: next.Unready}, nil
}

// A Prepared is a compiled configuration that is ready to be served. Exactly one of Install and
// Discard must be called, once.
type Prepared struct {
	*generation
	proxy   *Proxy
	Unready error // if not nil, why some requests will be refused for now
}

// Prepare compiles c without serving it. It returns an error that wraps ErrRestart if c changes
// what a reload cannot change.
func (p *Proxy) Prepare(ctx context.Context, c *config.Config) (*Prepared, error) {
	if err := immutable(p.current.Load().config, c); err != nil {
		return nil, err
	}
	next, err := compile(c, p.shared)
	if err != nil {
		return nil, fmt.Errorf("compile config: %w", err)
	}
	unready := next.warm(ctx, p.log)
	if unready != nil && !errors.Is(unready, key.ErrNoVerificationKeys) {
		next.abandon()
		return nil, fmt.Errorf("warm: %w", unready)
	}
	return &Prepared{next, p, unready}, nil
}

// Config returns the configuration that was prepared.
func (p *Prepared) Config() *config.Config { return p.config }

// ChangedLimits returns the limits in enforce mode whose counts in this cluster's store determine which
// keys are refused, except those that are served now as they are. It excludes limits shared with other
// programs, limits counted by each node separately, and limits with overrides.
func (p *Prepared) ChangedLimits() (changed []limiter.Limit) {
	now := limit.Plain(p.proxy.current.Load().limits)
	for _, l := range limit.Plain(p.limits) {
		same := func(n limiter.Limit) bool {
			return n.Name == l.Name && n.Rate == l.Rate && n.Algorithm == l.Algorithm && n.Burst == l.Burst
		}
		if !slices.ContainsFunc(now, same) {
			changed = append(changed, l)
		}
	}
	return changed
}

// KeyHash returns the hash of k in the log.
func (p *Prepared) KeyHash(k limiter.Key) string { return p.redact.KeyHash(k) }

// Install serves p from now on, with the number on which all nodes have agreed.
func (p *Prepared) Install(number int64) {
	p.proxy.reloading.Lock()
	defer p.proxy.reloading.Unlock()
	p.proxy.swap(p, number)
	p.proxy.needsRejoin = false
	p.proxy.metrics.countReload(Report{Changed: true}, nil)
}

// Discard releases the resources of p.
func (p *Prepared) Discard() { p.abandon() }

// swap makes next the current generation. p.reloading must be held.
func (p *Proxy) swap(next *Prepared, number int64) {
	old := p.current.Load()
	next.number = number
	p.setCurrent(next.generation) // nothing can fail from here on
	next.start()
	p.metrics.generation.Set(float64(number))
	old.retire()
	old.abandon() // closed when its last request ends
}

// Serving returns the number and the configuration of the current generation.
func (p *Proxy) Serving() (number int64, c *config.Config) {
	g := p.current.Load()
	return g.number, g.config
}

// immutable returns an error that wraps ErrRestart and lists the sections that differ between two
// configurations and cannot be changed by a reload.
func immutable(was, is *config.Config) error {
	var sections []string
	for _, s := range []struct {
		name string
		same bool
	}{
		{"listen", reflect.DeepEqual(was.Listen, is.Listen)},
		{"admin", reflect.DeepEqual(was.Admin, is.Admin)},
		{"store", was.Store == is.Store},
		{"redis", was.Redis.Equal(is.Redis)},
		{"reload", was.Reload == is.Reload},
		{"traces.endpoint, headers or service", was.Traces.Endpoint == is.Traces.Endpoint && was.Traces.Service == is.Traces.Service && maps.Equal(was.Traces.Headers, is.Traces.Headers)},
		{"access_log.file", was.AccessLog.File == is.AccessLog.File},
	} {
		if !s.same {
			sections = append(sections, s.name)
		}
	}
	if len(sections) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s changed; restart weir, or undo that change", ErrRestart, strings.Join(sections, ", "))
}
