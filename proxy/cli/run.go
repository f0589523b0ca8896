package cli

import (
	"context"
	"errors"
	"io"
	stdlog "log"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/mattn/go-isatty"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/acme"
	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/config"
)

type runCommand struct {
	Config string `short:"c" help:"The configuration; without it weir.yaml, then config.example.yaml." placeholder:"FILE"`
	Level  string `name:"log-level" default:"info" enum:"debug,info,warn,error" help:"The least that is logged; warn leaves out the line of each request."`
}

// Run serves until ctx is done, then drains.
func (c runCommand) Run(ctx context.Context, w Env) error {
	path, err := configPath(c.Config)
	if err != nil {
		return err
	}
	read, err := load(path, w.Stderr)
	if err != nil {
		return err
	}
	if missing := read.Missing(); len(missing) > 0 {
		return printed(w.Stderr, missing)
	}
	queue := newLogQueue(w.Stderr)
	defer queue.Close()
	log := newLog(w.Stderr, queue, c.Level)
	stdlog.SetFlags(0)
	stdlog.SetOutput(stdLog{log})         // the standard library's, for the whole process
	memlimit.Set(memlimit.WithRatio(0.9)) // without a limit to find, nothing is set
	s, err := assemble(ctx, path, read, log)
	if err != nil {
		return err
	}
	queue.watch(s.registry)
	return s.serve(ctx, w.Reload)
}

// configPaths are the files that may be read: the one that was named, or else the
// first that is there.
func configPaths(named string) []string {
	if named != "" {
		return []string{named}
	}
	return []string{"weir.yaml", "config.example.yaml"}
}

// configPath is the file to read: the one that was named, or the first that is
// there.
func configPath(named string) (string, error) {
	if named != "" {
		return named, nil
	}
	for _, path := range configPaths("") {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			return path, err
		}
	}
	return "", errors.New("no configuration: write weir.yaml, or name a file with -c FILE")
}

// newLog writes JSON lines to queue, or lines for people when what is behind it, out,
// is a terminal.
func newLog(out io.Writer, queue *logQueue, level string) zerolog.Logger {
	least, err := zerolog.ParseLevel(level)
	if err != nil {
		panic(err) // kong lets no other words through
	}
	var lines io.Writer = queue
	if f, ok := out.(*os.File); ok && isatty.IsTerminal(f.Fd()) {
		lines = zerolog.ConsoleWriter{Out: queue, TimeFormat: time.TimeOnly}
	}
	return zerolog.New(lines).Level(least).Hook(clock{})
}

// stdLog is what libraries write to the standard log: of use when looking for
// a fault, and no JSON by itself.
type stdLog struct{ log zerolog.Logger }

func (w stdLog) Write(line []byte) (int, error) {
	w.log.Debug().Str("error", strings.TrimSpace(string(line))).Msg("stdlib log")
	return len(line), nil
}

// A clock stamps each line with the time in UTC, RFC 3339 with milliseconds.
type clock struct{}

// Run implements zerolog.Hook.
func (clock) Run(e *zerolog.Event, _ zerolog.Level, _ string) {
	e.Str(zerolog.TimestampFieldName, time.Now().UTC().Format("2006-01-02T15:04:05.000Z07:00"))
}

// A service is one weir, put together and listening.
type service struct {
	log          zerolog.Logger
	proxy        *proxy.Proxy
	source       *configSource
	shared       shared
	lead         *leaderTasks
	salt         *salt
	clients      *proxy.Server
	admins       *proxy.Server
	listening    []listening
	registry     *prometheus.Registry
	certificates *proxy.Certificates // nil without HTTPS
	issuer       *acme.Manager       // nil without ACME
	systemd      systemd
	standing     *standing
	drains       config.Drain
	draining     atomic.Bool
}

// assemble puts a weir together. When it returns an error, nothing is left open.
func assemble(ctx context.Context, path string, c *config.Config, log zerolog.Logger) (*service, error) {
	s := &service{
		log: log, registry: newRegistry(), source: &configSource{path: path, own: c, log: log},
		systemd: systemd{log}, drains: c.Listen.Drain,
	}
	err := writable(c)
	if err != nil {
		return nil, err
	}
	s.watchable(path)
	if s.shared, err = openStore(c, log); err != nil {
		return nil, err
	}
	begin, err := s.shared.begin(ctx, s.source)
	if err != nil {
		s.shared.close()
		return nil, err
	}
	s.salt = newSalt(s.shared)
	if s.shared.node != nil {
		s.shared.count(s.registry)
		s.salt.agree(ctx) // or later: run
	}
	s.proxy, err = proxy.New(ctx, proxy.Options{
		Path: path, Config: begin.config, Read: s.source.read, Registry: s.registry, Log: log,
		Store: s.shared.store, Nodes: s.shared.nodes, Agree: s.shared.agree, Number: begin.number,
		LogSalt: s.salt.value,
	})
	if err != nil {
		s.shared.close()
		return nil, err
	}
	s.standing = newStanding(s.registry)
	s.lead = newLeaderTasks(s.shared, s.proxy, s.registry, log)
	api := admin.Options{Token: c.Admin.Token, Hosts: c.Admin.Hosts, Gatherer: s.registry, Reload: s.reload, Ready: s.ready, Plan: s.plan}
	s.wireAdmin(&api)
	s.admins = proxy.NewServer(admin.New(api), operators(c.Listen), log)
	s.clients = proxy.NewServer(entrance{s}, c.Listen, log)
	if err := s.listen(ctx, c); err != nil {
		s.shared.close()
		return nil, err
	}
	for _, warning := range begin.config.Warnings {
		log.Warn().Str("at", warning.Position.String()).Str("problem", warning.String()).Msg("config warning")
	}
	return s, nil
}

// serve serves until ctx is done or a listener fails, then drains.
func (s *service) serve(ctx context.Context, reload <-chan os.Signal) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var background sync.WaitGroup
	addresses := map[string]any{}
	for _, l := range s.listening {
		addresses[l.name] = l.Addr().String()
		background.Go(func() {
			if err := l.serve(l.Listener); err != nil {
				stop(err)
			}
		})
	}
	background.Go(func() { s.watch(ctx) })
	living, end := context.WithCancel(context.Background())
	background.Go(func() { pulse(living, s.source.path) })
	background.Go(func() { s.signals(ctx, reload) })
	// As long as requests end here, this node has its share of what the cluster
	// limits, and is asked about what is pushed.
	member, part := context.WithCancel(context.Background())
	background.Go(func() { s.shared.run(member, s.address("admin")) })
	background.Go(func() { s.watchPeers(member) })
	background.Go(func() { s.follow(member) })
	background.Go(func() { s.renew(ctx) })
	background.Go(func() { save(ctx) })
	background.Go(func() { s.salt.run(ctx) })
	background.Go(func() { s.lead.run(ctx) })
	s.log.Info().Fields(addresses).Str("store", s.shared.name).Str("version", readBuild().version).Msg("serving")
	watched, unwatch := context.WithCancel(context.Background())
	background.Go(func() { s.systemd.watchdog(watched, s.alive) })
	s.systemd.ready(s.proxy)

	<-ctx.Done()
	err := s.drain()
	part()
	unwatch()
	end()
	background.Wait()
	s.closeIssuer()
	s.proxy.Close()
	s.lead.close()
	s.shared.close()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// alive reports whether the admin listener answers: what a health check asks.
func (s *service) alive() bool {
	return healthcheckCommand{Admin: s.address("admin"), Within: connectPatience}.Run(context.Background()) == nil
}

// drain ends the service in peace: first its answers end their connections and it
// is no longer ready, then it takes no connections, then requests under way end.
func (s *service) drain() error {
	s.clients.Part()
	s.draining.Store(true)
	s.systemd.stopping()
	s.log.Info().Float64("delay_s", s.drains.Delay.Seconds()).Float64("within_s", s.drains.Within.Seconds()).Msg("draining")
	<-time.After(s.drains.Delay)
	ctx, cancel := context.WithTimeout(context.Background(), s.drains.Within)
	defer cancel()
	err := s.clients.Drain(ctx)
	if err := s.admins.Drain(ctx); err != nil {
		s.log.Warn().Err(err).Msg("admin drain")
	}
	s.log.Info().Msg("drained")
	return err
}

func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	b := readBuild()
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "weir_build_info", Help: "Which weir this is; always 1.",
			ConstLabels: prometheus.Labels{"version": b.version, "commit": b.commit, "goversion": b.golang},
		}, func() float64 { return 1 }),
	)
	return r
}
