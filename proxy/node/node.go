package node

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/acme"
	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/decide"
	"github.com/weir-proxy/weir/proxy/frontend"
)

// Options configure a Node. All but Reload and Reopen are required.
type Options struct {
	Path   string                         // path of the configuration file
	Config *config.Config                 // the loaded configuration
	Load   func() (*config.Config, error) // loads the configuration anew
	Log    *Log
	Build  Build
	Reload <-chan os.Signal // each signal triggers a reload
	Reopen <-chan os.Signal // each signal reopens the access log; may be nil
}

// A Build identifies the program.
type Build struct{ Version, Commit, Go string }

// A Node is one running weir. Address and Reload are safe for concurrent use; the other methods are not.
type Node struct {
	log          zerolog.Logger
	access       *accessLog
	build        Build
	proxy        *proxy.Proxy
	source       *configSource
	store        store
	leader       *leaderTasks
	audit        *cluster.Audit
	directives   *cluster.Directives
	events       *admin.Events
	wrongTokens  *admin.WrongTokens
	salt         *salt
	clients      *frontend.Server
	admins       *frontend.NetHTTPServer
	deciders     *frontend.Server    // for other proxies; nil if none may ask
	rateLimits   *decide.EnvoyServer // nil if Envoy may not ask
	listeners    []listener
	registry     *prometheus.Registry
	certificates *frontend.Certificates // nil without HTTPS
	peerFacing   *frontend.Certificates // of the listener for other proxies; nil without TLS there
	issuer       *acme.Manager          // nil without ACME
	systemd      systemd
	reloads      *reloadStatus
	drains       config.Drain
	replaying    chan struct{} // a semaphore: one simulation runs at a time
	drift        configDiffs
	draining     atomic.Bool

	closers closers
	serving *tasks     // tasks that end when draining begins
	member  *tasks     // tasks that end when no request is served any more
	failed  chan error // buffered, length 1: the error of a listener
}

// Start assembles a node and serves. ctx is for the start only: the node runs until Close. If Start
// returns an error, nothing is left open.
func Start(ctx context.Context, o Options) (*Node, error) {
	n := &Node{
		log: o.Log.Logger, build: o.Build, registry: newRegistry(o.Build), systemd: systemd{o.Log.Logger}, drains: o.Config.Listen.Drain, replaying: make(chan struct{}, 1),
		source:  &configSource{path: o.Path, load: o.Load, machine: o.Config, log: o.Log.Logger},
		serving: newTasks(), member: newTasks(), failed: make(chan error, 1),
	}
	err := n.openAccessLog(o)
	if err == nil {
		err = n.assemble(ctx)
	}
	if err == nil {
		err = n.listen(ctx, o)
	}
	if err != nil {
		_ = n.closers.close(context.WithoutCancel(ctx)) // the first error is returned
		return nil, err
	}
	n.serve(o)
	return n, nil
}

// assemble creates all parts except the listeners.
func (n *Node) assemble(ctx context.Context) error {
	own := n.source.machine
	if err := checkWritable(own); err != nil {
		return err
	}
	n.checkBindMount(n.source.path)
	var err error
	if n.store, err = openStore(own, n.log, n.build.Version); err != nil {
		return err
	}
	n.closers.push("store", func(context.Context) error { n.store.close(); return nil })
	first, number, err := n.store.boot(ctx, n.source)
	if err != nil {
		return err
	}
	n.salt = newSalt(n.store)
	o := proxy.Options{
		Config: first, Read: n.source.read, Registry: n.registry, Log: n.log, Store: n.store.limits, Number: number,
		HTTPSAddress: func() string { return n.Address("https") }, LogSalt: n.salt.value, Access: &n.access.AccessWriter, Traces: n.openTraces(first.Traces),
	}
	if member := n.store.cluster; member != nil {
		n.store.registerMetrics(n.registry)
		n.salt.agree(ctx) // salt.run retries
		o.Nodes, o.Agree = member.Live, member.Agree
	}
	if n.proxy, err = proxy.New(ctx, o); err != nil {
		return err
	}
	n.reloads = newReloadStatus(n.registry)
	n.leader = n.newLeaderTasks()
	n.closers.push("statistics", n.leader.close)
	n.audit = cluster.NewAudit(n.store.client, n.store.prefix, n.store.id, n.logOperator)
	n.events, n.wrongTokens = admin.NewEvents(n.proxy.Counts), admin.NewWrongTokens(n.registry)
	n.directives = cluster.NewDirectives(n.store.client, n.store.prefix, n.proxy.SetDirectives)
	_ = n.directives.Sync(ctx) // if Redis is unreachable, its task retries
	n.closers.push("audit", n.closeAudit)
	n.closers.push("proxy", func(context.Context) error { n.proxy.Close(); return nil })
	n.report(proxy.Report{Warnings: first.Warnings}, nil)
	return nil
}

// serve accepts connections and starts all tasks.
func (n *Node) serve(o Options) {
	n.closers.push("tasks", func(ctx context.Context) error { return errors.Join(n.serving.wait(ctx), n.member.wait(ctx)) })
	addresses := map[string]any{}
	for _, l := range n.listeners {
		addresses[l.name] = l.Addr().String()
		n.member.start(l.name+" listener", func(context.Context) {
			if err := n.accept(l); err != nil {
				n.fail(err)
			}
		})
	}
	n.serving.start("config watcher", n.watch)
	n.serving.start("reload signals", func(ctx context.Context) { onEach(ctx, o.Reload, func() { untilFree(ctx, n.Reload) }) })
	n.member.start("reopen signals", func(ctx context.Context) { onEach(ctx, o.Reopen, n.reopenOnce) })
	n.serving.start("certificates", n.renewCertificates)
	n.serving.start("log salt", n.salt.run)
	n.serving.start("leader", n.leader.run)
	n.serving.start("events", n.events.Run) // ends before draining, so that draining does not wait for subscribers
	// While requests are served, this node remains a member, which has its share of the limits and
	// is asked about pushes.
	if node := n.store.cluster; node != nil {
		n.member.start("cluster member", func(ctx context.Context) { node.Run(ctx, n.Address("admin")) })
		n.member.start("store", func(ctx context.Context) { n.store.watch(ctx, n.log) })
		n.member.start("peers", n.watchPeers)
		n.member.start("questions of other nodes", func(ctx context.Context) { node.ServeQuestions(ctx, n.localAnswer) })
		n.member.start("pushes", n.follow)
	}
	n.member.start("upstream targets", n.watchTargets)
	n.member.start("audit", n.flushAudit)
	n.member.start("directives", n.directives.Run)
	n.member.start("wrong tokens", func(ctx context.Context) { logWrongTokens(ctx, n.wrongTokens, n.log) })
	n.member.start("liveness socket", func(ctx context.Context) { serveLiveness(ctx, n.source.path) })
	n.log.Info().Fields(addresses).Str("store", n.store.kind).Str("version", n.build.Version).Msg("serving")
	n.member.start("watchdog", func(ctx context.Context) { n.systemd.watchdog(ctx, n.alive) })
	n.systemd.ready(n.proxy)
	n.closers.push("cluster membership", n.member.stop)
	n.closers.stack = append(n.closers.stack, closer{"requests", n.drains.Delay + n.drains.Within + closeTimeout, n.drain})
	n.closers.push("leadership", n.serving.stop)
}

// fail records why the node cannot continue.
func (n *Node) fail(err error) {
	select {
	case n.failed <- err:
	default: // another listener has failed before
	}
}

// Wait waits until ctx is done, or until a listener fails, whose error it returns.
func (n *Node) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-n.failed:
		return err
	}
}

// Reload loads the configuration anew and serves it. When it returns an error, the node serves what it
// served before. It is safe for concurrent use.
func (n *Node) Reload(ctx context.Context) error {
	_, err := n.reload(ctx)
	return err
}

// Close drains and ends the node: it gives up the leadership, accepts no new connections, waits for
// requests in progress, and closes all parts. It returns an error if requests were aborted or a
// part did not close in time.
func (n *Node) Close() error { return n.closers.close(context.Background()) }

// drain ends serving gracefully: first, responses close their connections and the node is not
// ready; then, no connections are accepted; finally, requests in progress end.
func (n *Node) drain(ctx context.Context) error {
	servers := slices.DeleteFunc([]*frontend.Server{n.clients, n.deciders}, func(s *frontend.Server) bool { return s == nil })
	for _, s := range servers {
		s.AnnounceClose()
	}
	if n.rateLimits != nil {
		n.rateLimits.AnnounceClose()
	}
	n.draining.Store(true)
	n.systemd.stopping()
	n.log.Info().Float64("delay_s", n.drains.Delay.Seconds()).Float64("within_s", n.drains.Within.Seconds()).Msg("draining")
	<-time.After(n.drains.Delay)
	ctx, cancel := context.WithTimeout(ctx, n.drains.Within)
	defer cancel()
	var ending sync.WaitGroup // all at once: each may take all of the time
	errs := make([]error, len(servers))
	for i, s := range servers {
		ending.Go(func() { errs[i] = s.Drain(ctx) })
	}
	if n.rateLimits != nil {
		ending.Go(func() { n.rateLimits.Drain(ctx) })
	}
	ending.Wait()
	if err := n.admins.Drain(ctx); err != nil {
		n.log.Warn().Err(err).Msg("admin drain")
	}
	n.log.Info().Msg("drained")
	return errors.Join(errs...)
}

func newRegistry(b Build) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "weir_build_info", Help: "Build information; always 1.",
			ConstLabels: prometheus.Labels{"version": b.Version, "commit": b.Commit, "goversion": b.Go},
		}, func() float64 { return 1 }),
	)
	return r
}
