package node

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/config/bundle"
)

// reload reloads the configuration and logs the result.
func (n *Node) reload(ctx context.Context) (admin.Reloaded, error) {
	n.systemd.reloading()
	defer n.systemd.ready(n.proxy)
	n.reloads.one.Lock()
	report, err := n.proxy.Reload(ctx)
	n.reloads.record(err)
	n.reloads.one.Unlock()
	n.report(report, err)
	return admin.Reloaded{Generation: report.Generation, Hash: report.Hash, Changed: report.Changed}, err
}

// report logs the result of a reload.
func (n *Node) report(report proxy.Report, err error) {
	if report.Changed || err != nil {
		n.publishReload(report.Generation, report.Hash, err)
	}
	var problems config.Problems
	switch {
	case errors.As(err, &problems):
		for _, p := range problems {
			e := n.log.Error().Str("file", p.File)
			if p.Line > 0 { // otherwise it is about the whole file
				e = e.Int("line", p.Line).Int("column", p.Column)
			}
			e.Str("problem", p.String()).Msg("reload refused")
		}
		return
	case err != nil:
		n.log.Error().Err(err).Msg("reload refused")
		return
	case report.AgreeErr != nil:
		n.log.Warn().Err(report.AgreeErr).Msg("reloaded without the other nodes")
	}
	if report.Unready != nil {
		n.log.Warn().Err(report.Unready).Msg("tokens are refused for now")
	}
	for _, warning := range report.Warnings {
		n.log.Warn().Str("at", warning.Position.String()).Str("field", warning.Path).Str("problem", warning.What).Str("instead", warning.Instead).Msg("config warning")
	}
	if report.Changed {
		n.log.Info().Int64("generation", report.Generation).Str("hash", report.Hash).
			Dur("took_ms", report.Took).Msg("reloaded")
	}
}

// watch reloads when files change.
func (n *Node) watch(ctx context.Context) {
	files := func(w *fsnotify.Watcher) []string {
		_, served := n.proxy.Serving()
		return configFiles(w, served, config.FilesOf(n.source.path)) // a reload may have refused the latter
	}
	err := watch(ctx, files, func(ctx context.Context) { untilFree(ctx, n.Reload) })
	if err != nil {
		n.log.Error().Err(err).Msg("cannot watch the config file; send SIGHUP after a change")
	}
}

// untilFree calls reload, and again while other nodes are at it for too long: nothing else would begin it anew.
func untilFree(ctx context.Context, reload func(context.Context) error) {
	for ctx.Err() == nil && errors.Is(reload(ctx), cluster.ErrBusy) { // it has waited for them
	}
}

// ready returns the readiness of this node.
func (n *Node) ready(ctx context.Context) admin.Health {
	number, _ := n.proxy.Serving()
	warning, err := n.store.check(ctx)
	checks := map[string]string{"config": n.reloads.status(number), "store": cmp.Or(proxy.ErrorText(err), "ok")}
	r := admin.Health{Ready: !n.draining.Load(), CallsBySlot: n.store.bySlot(), Checks: checks}
	if warning != "" {
		r.Checks["eviction"] = warning
	}
	if !r.Ready {
		r.Checks["draining"] = "requests in progress are ending"
	}
	return r
}

// A reloadStatus is the result of the last reload and of the last push. After a refusal the status
// remains refused until a reload succeeds, even if only by undoing the change, and after that of a pushed
// configuration until another push succeeds: until then this node does not serve the configuration that
// it should.
type reloadStatus struct {
	successful, succeededAt prometheus.Gauge
	one                     sync.Mutex // held by a reload until its result is recorded

	mu      sync.Mutex // guards what follows
	refused time.Time  // zero if the last reload succeeded
	pushed  time.Time  // when a pushed configuration was refused; zero if the last push succeeded
}

// newReloadStatus returns the status of a node that has just loaded its configuration.
func newReloadStatus(r prometheus.Registerer) *reloadStatus {
	register := promauto.With(r)
	s := &reloadStatus{
		successful: register.NewGauge(prometheus.GaugeOpts{
			Name: "weir_config_last_reload_successful", Help: "1 if the last reload succeeded, 0 if it was refused.",
		}),
		succeededAt: register.NewGauge(prometheus.GaugeOpts{
			Name: "weir_config_last_reload_success_timestamp_seconds", Help: "Time of the last successful reload, in seconds since 1970.",
		}),
	}
	s.record(nil)
	return s
}

// record records the result of a reload.
func (s *reloadStatus) record(err error) { s.note(err, &s.refused) }

// recordPush records the result of a push, which replaces what was reloaded before.
func (s *reloadStatus) recordPush(err error) { s.note(err, &s.pushed, &s.refused) }

// note keeps the time of the first refusal in the first of refusals. A success ends all of them.
func (s *reloadStatus) note(err error, refusals ...*time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if refusals[0].IsZero() {
			*refusals[0] = time.Now()
		}
		s.successful.Set(0)
		return
	}
	for _, since := range refusals {
		*since = time.Time{}
	}
	if s.refused.IsZero() && s.pushed.IsZero() {
		s.successful.Set(1)
		s.succeededAt.SetToCurrentTime()
	}
}

// status returns the status for /readyz, which is public: it reveals nothing about the files.
func (s *reloadStatus) status(generation int64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	since := cmp.Or(s.pushed, s.refused)
	if since.IsZero() {
		return "ok"
	}
	return fmt.Sprintf("refused since %s; generation %d is served on, and the log says what is wrong", since.UTC().Format(time.RFC3339), generation)
}

const (
	// settleTime is how long files must not change before they are read: editors and Kubernetes
	// change them in several steps.
	settleTime = 150 * time.Millisecond
	// rescanInterval is the interval at which files are read anyway, for file systems that report
	// no events. What has not settled by then is read as it is after the next one: it may be written all the time.
	rescanInterval = 30 * time.Second
)

// watch calls changed whenever the content of files changes, and once at the beginning, until
// ctx is done. It watches directories instead of files, because editors and Kubernetes replace
// files. If a directory cannot be watched, changes are found every rescanInterval.
func watch(ctx context.Context, files func(*fsnotify.Watcher) []string, changed func(context.Context)) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch files: %w", err)
	}
	defer func() { go w.Close() }() // nobody waits for it: on a busy machine it takes the kernel seconds

	whenSettled(ctx, w, func() ([sha256.Size]byte, map[string]bool) { return hashFiles(w, files(w)) }, changed)
	return nil
}

// whenSettled calls changed when what look returns, a hash of files and their names, has changed after events of w, once these have
// settled, or after rescanInterval.
func whenSettled(ctx context.Context, w *fsnotify.Watcher, look func() ([sha256.Size]byte, map[string]bool), changed func(context.Context)) {
	var seen, now [sha256.Size]byte // zero: the files may have changed since they were loaded
	_, names := look()
	again, settled, wait := time.NewTicker(rescanInterval), time.NewTimer(0), settleTime
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-w.Events: // the kinds of events differ between systems
			if !e.Has(fsnotify.Write) || names[filepath.Base(e.Name)] { // others may be written all the time, such as a log
				settled.Reset(settleTime)
			}
		case <-w.Errors: // events may have been lost
			settled.Reset(settleTime)
		case <-again.C:
			settled.Reset(wait) // they may be being written
			wait = 0            // all the time: the next time they are read as they are
		case <-settled.C:
			wait = settleTime
			if now, names = look(); now != seen {
				seen = now
				changed(ctx)
				_, names = look() // watch new files
			}
		}
	}
}

// configFiles returns the files of configurations, and those that match their patterns now.
func configFiles(w *fsnotify.Watcher, all ...*config.Config) (files []string) {
	for _, c := range all {
		files = append(files, c.Files...)
		for _, g := range c.Globs {
			found, _ := filepath.Glob(g) // one that is not valid matches nothing
			files = append(files, found...)
			w.Add(filepath.Dir(g))
		}
	}
	slices.Sort(files)
	return slices.Compact(files)
}

// hashFiles watches the directories of files, and returns a hash of their content, and their names in these directories.
func hashFiles(w *fsnotify.Watcher, files []string) (sum [sha256.Size]byte, names map[string]bool) {
	h, names := sha256.New(), map[string]bool{}
	for _, f := range files {
		real, _ := filepath.EvalSymlinks(f)
		for _, path := range []string{f, cmp.Or(real, f)} {
			w.Add(filepath.Dir(path)) // on failure the file is found by rescanning
			names[filepath.Base(path)] = true
		}
		n, err := hashFile(h, f)
		fmt.Fprintf(h, "%q %d %v\n", f, n, err != nil)
	}
	return [sha256.Size]byte(h.Sum(nil)), names
}

// hashFile writes the content of a file to h, without holding it in memory: a list may be long.
func hashFile(h hash.Hash, name string) (size int64, err error) {
	if at, err := os.Stat(name); err != nil || !at.Mode().IsRegular() { // a device may have no end
		return 0, fs.ErrInvalid
	}
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return io.Copy(h, f)
}

// A configSource is the source of the configuration: the file of this machine, or the pushed
// configuration. With the latter, only the sections that belong to the machine are used from the
// file.
type configSource struct {
	path    string
	load    func() (*config.Config, error) // loads the file
	machine *config.Config                 // the file as loaded at the start
	log     zerolog.Logger

	bundle atomic.Pointer[bundle.Bundle] // the pushed configuration that is served; nil if the file is served
}

// pushable reports whether pushed configurations are served.
func (s *configSource) pushable() bool { return s.machine.Reload.Source == config.SourceRedis }

// read returns the configuration to serve: the pushed one, with the files of this machine to which
// it refers, otherwise the own file.
func (s *configSource) read(context.Context) (*config.Config, error) {
	b := s.bundle.Load()
	if b == nil {
		return s.load()
	}
	if file, err := s.load(); err != nil || file.Sum != s.machine.Sum {
		s.log.Warn().Str("file", s.path).Msg("the file has changed and is not served; push it with weir push")
	}
	return bundle.Unpack(s.machine, *b)
}

// seal returns what encrypts and opens pushed configurations.
func (s *configSource) seal() bundle.Seal { return bundle.NewSeal(s.machine.Privacy) }

// keep writes the pushed configuration to the configured file, as it is stored in Redis. The file is replaced atomically.
func (s *configSource) keep(e cluster.Entry) error {
	path := s.machine.Reload.Keep
	if path == "" {
		return nil
	}
	text, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("store pushed config: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return fmt.Errorf("store pushed config: %w", err)
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("store pushed config: %w", err)
	}
	return nil
}

// readKept reads the kept configuration. Its Generation is 0 if there is none.
func (s *configSource) readKept() (k cluster.Entry, err error) {
	if s.machine.Reload.Keep == "" {
		return k, nil
	}
	text, err := os.ReadFile(s.machine.Reload.Keep)
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	var stored struct {
		cluster.Entry
		Bundle json.RawMessage `json:"bundle"`
	}
	if err == nil {
		err = json.Unmarshal(text, &stored)
	}
	if k = stored.Entry; err == nil && bytes.HasPrefix(stored.Bundle, []byte{'{'}) { // as 0.1.0 kept it
		err = json.Unmarshal(stored.Bundle, &k.Bundle)
		k.Packed = s.seal().Pack(k.Bundle)
	} else if err == nil {
		if err = json.Unmarshal(stored.Bundle, &k.Packed); err == nil {
			k.Bundle, err = s.seal().Open(k.Packed, k.Hash)
		}
	}
	if err != nil {
		return cluster.Entry{}, fmt.Errorf("load pushed config: %w", err)
	}
	return k, nil
}
