package node

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/config/bundle"
)

// boot determines the configuration to serve first, with its generation, which is 0 if the other nodes
// could not be asked: the one pushed to all nodes, otherwise the file. If Redis is unreachable, that is
// logged and is not an error: the pushed configuration is then read from disk if it was kept there,
// otherwise the file is used, and limits follow on_store_failure. It is an error if the Redis version is
// too old, or if the pushed configuration cannot be served on this machine: a node must not serve
// anything else than the others.
func (s store) boot(ctx context.Context, o *configSource) (c *config.Config, number int64, err error) {
	if s.cluster == nil {
		return o.machine, 0, nil
	}
	_, err = s.check(ctx)
	if errors.Is(err, redisstore.ErrVersion) {
		return nil, 0, err
	}
	var e cluster.Entry
	if err == nil && o.pushable() {
		e, err = s.pushed(ctx, o)
	}
	if err == nil && e.Generation > 0 {
		return s.bootPushed(o, e)
	}
	if err == nil {
		err = s.cluster.Agree(ctx, o.machine, func(agreed int64) { number = agreed })
	}
	if err == nil {
		return o.machine, number, nil
	}
	logUnusable(o.log.With().Strs("addrs", o.machine.Redis.Addrs).Logger(), err)
	k := o.kept()
	if k.Generation == 0 {
		s.cluster.Assume(o.machine.Hash, 1)
		return o.machine, 0, nil
	}
	o.log.Info().Int64("generation", k.Generation).Str("hash", k.Hash).Msg("serving last pushed config from disk")
	if c, number, err = s.bootPushed(o, k); err != nil {
		err = fmt.Errorf("config kept in %s: %w", o.machine.Reload.Keep, err)
	}
	return c, number, err
}

// pushed returns the configuration that was pushed last: the one in Redis or, if Redis has lost it, the one kept on
// disk, which the first heartbeat restores in Redis. Its Generation is 0 if there is none.
func (s store) pushed(ctx context.Context, o *configSource) (cluster.Entry, error) {
	e, err := s.cluster.Pushed(ctx)
	if err != nil {
		return e, err
	}
	k := o.kept()
	number, err := s.cluster.Number(ctx)
	if err != nil || number >= k.Generation || e.At.After(k.At) { // pushed where nobody knew of k
		return e, err
	}
	o.log.Warn().Int64("generation", k.Generation).Msg("redis lost the pushed config; serving it from disk and publishing it again")
	return k, nil
}

// kept returns the kept configuration. Its Generation is 0 if there is none, or if it cannot be read.
func (s *configSource) kept() cluster.Entry {
	k, err := s.readKept()
	if err != nil {
		s.log.Warn().Err(err).Msg("cannot read reload.keep")
	}
	return k
}

// bootPushed returns the configuration that was pushed to all nodes.
func (s store) bootPushed(o *configSource, e cluster.Entry) (*config.Config, int64, error) {
	c, err := (*config.Config)(nil), e.Unreadable
	if err == nil {
		c, err = bundle.Unpack(o.machine, e.Bundle)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("pushed config of generation %d: %w", e.Generation, err)
	}
	o.bundle.Store(new(e.Bundle))
	s.cluster.Adopt(e, c)
	if err := o.keep(e); err != nil {
		o.log.Warn().Err(err).Msg("cannot write reload.keep")
	}
	return c, e.Generation, nil
}

// mountInfo lists the mounts of a process on Linux; see proc(5).
const mountInfo = "/proc/self/mountinfo"

// isMountPoint reports whether the file at path is itself a mount point, as in containers into which a
// single file is mounted. Such a mount always shows the same inode. If the file is replaced by
// renaming a new one, as editors and most tools do, the container never sees the new file.
func isMountPoint(path string, mounts io.Reader) bool {
	whole, err := filepath.Abs(path)
	if err != nil {
		return false
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`) // what the kernel escapes
	lines := bufio.NewScanner(mounts)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) > 4 && unescape.Replace(fields[4]) == whole {
			return true
		}
	}
	return false
}

// checkBindMount logs a warning if changes of a file may not be visible.
func (n *Node) checkBindMount(path string) {
	f, err := os.Open(mountInfo)
	if err != nil {
		return // not Linux
	}
	defer f.Close()
	if isMountPoint(path, f) {
		n.log.Warn().Str("file", path).Msg("config file is a bind mount, in which a replaced file is not visible; mount its directory")
	}
}

// closeTimeout is the default time limit for closing one part of a node.
const closeTimeout = 10 * time.Second

// errCloseTimeout reports that a part of a node did not close within its time limit.
var errCloseTimeout = errors.New("not closed in time")

// A closer closes one part of a node.
type closer struct {
	name    string
	timeout time.Duration
	close   func(ctx context.Context) error
}

// closers is a stack of parts that were started. They are closed in reverse order, so that a part
// can use all earlier ones until it has ended. The zero value is ready to use. It is used by one
// goroutine.
type closers struct{ stack []closer }

// push adds a part that was started. The context of close ends after closeTimeout.
func (c *closers) push(name string, close func(ctx context.Context) error) {
	c.stack = append(c.stack, closer{name, closeTimeout, close})
}

// close closes all parts in reverse order and returns their errors. A part that exceeds its time
// limit is abandoned, so that it does not block the others; its error is errCloseTimeout with its
// name. The stack is empty afterwards.
func (c *closers) close(ctx context.Context) error {
	var errs []error
	for len(c.stack) > 0 {
		last := c.stack[len(c.stack)-1]
		c.stack = c.stack[:len(c.stack)-1]
		errs = append(errs, last.run(ctx))
	}
	return errors.Join(errs...)
}

// run closes one part.
func (c closer) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- c.close(ctx) }()
	select {
	case err := <-closed:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-closed: // closed at the same moment
		return err
	default:
		return fmt.Errorf("close %s: %w (%v)", c.name, errCloseTimeout, c.timeout)
	}
}

// tasks is a group of named goroutines that are stopped together.
type tasks struct {
	ctx    context.Context // context of all tasks
	cancel context.CancelFunc
	wg     sync.WaitGroup

	running sync.Map // names of those that have not ended
}

func newTasks() *tasks {
	ctx, cancel := context.WithCancel(context.Background())
	return &tasks{ctx: ctx, cancel: cancel}
}

// start runs f in a goroutine. f must return when its context is done.
func (t *tasks) start(name string, f func(ctx context.Context)) {
	t.running.Store(name, true)
	t.wg.Go(func() {
		defer t.running.Delete(name)
		f(t.ctx)
	})
}

// stop cancels the tasks' context, and does not wait.
func (t *tasks) stop(context.Context) error {
	t.cancel()
	return nil
}

// wait waits for all tasks. If ctx is done before, it returns an error with the names of those
// still running.
func (t *tasks) wait(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		t.wg.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	var late []string
	for name := range t.running.Range {
		late = append(late, name.(string))
	}
	if late == nil { // they ended at the same moment
		return nil
	}
	slices.Sort(late)
	return fmt.Errorf("still running: %s: %w", strings.Join(late, ", "), errCloseTimeout)
}

// every calls f at each interval, until ctx is done.
func every(ctx context.Context, interval time.Duration, f func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	onEach(ctx, tick.C, f)
}

// onEach calls f at each tick or signal, until ctx is done.
func onEach[T any](ctx context.Context, ticks <-chan T, f func()) {
	for {
		select {
		case <-ticks:
			f()
		case <-ctx.Done():
			return
		}
	}
}

// A systemd notifies systemd of the state of this process (sd_notify, Type=notify-reload). Without
// systemd it does nothing.
type systemd struct{ log zerolog.Logger }

func (s systemd) ready(p *proxy.Proxy) {
	generation, _ := p.Serving()
	s.notify(daemon.SdNotifyReady + "\nSTATUS=serving generation " + strconv.FormatInt(generation, 10))
}

// reloading must be followed by ready, whatever the result.
func (s systemd) reloading() {
	s.notify(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec() + "\nSTATUS=reloading")
}

func (s systemd) stopping() { s.notify(daemon.SdNotifyStopping + "\nSTATUS=draining") }

func (s systemd) notify(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		s.log.Warn().Err(err).Msg("sd_notify failed")
	}
}

// alive reports whether the admin listener answers, like a health check.
func (n *Node) alive() bool {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	return admin.Client{Address: n.Address("admin")}.Healthz(ctx) == nil
}

// watchdog notifies systemd while alive returns true, twice in the interval that systemd expects,
// until ctx is done.
func (s systemd) watchdog(ctx context.Context, alive func() bool) {
	within, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		s.log.Warn().Err(err).Msg("watchdog off")
	}
	if within <= 0 {
		return
	}
	notify := func() {
		if alive() {
			s.notify(daemon.SdNotifyWatchdog)
		}
	}
	notify()
	every(ctx, within/2, notify)
}

// livenessRetry is the interval between attempts to open a socket that another process has.
const livenessRetry = time.Second

// livenessName returns the name of the socket on which a weir that was started with that file
// answers liveness checks. It is in the abstract namespace: it belongs to the network namespace (of
// a container, for example), needs no directory to write to, and disappears with the process. Only
// Linux has it; elsewhere the name is "".
func livenessName(path string) string {
	whole, err := filepath.Abs(path)
	if err != nil || runtime.GOOS != "linux" {
		return ""
	}
	sum := sha256.Sum256([]byte(whole))
	return "@weir/" + hex.EncodeToString(sum[:12])
}

// serveLiveness answers liveness checks until ctx is done. The socket can be found even if the
// admin listener of the file has changed since the start. While another process with the same file
// has the socket, that one answers.
func serveLiveness(ctx context.Context, path string) {
	name := livenessName(path)
	if name == "" {
		return
	}
	listen := func() (net.Listener, error) { return (&net.ListenConfig{}).Listen(ctx, "unix", name) }
	l, err := listen()
	for ; err != nil; l, err = listen() {
		select {
		case <-time.After(livenessRetry):
		case <-ctx.Done():
			return
		}
	}
	s := &http.Server{ReadHeaderTimeout: connectTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte("ok\n"))
	})}
	defer context.AfterFunc(ctx, func() { s.Close() })()
	_ = s.Serve(l) // until it is closed
}

// Alive checks the weir that was started with that file. It returns an error if there is none, or
// if it does not answer.
func Alive(ctx context.Context, path string) error {
	name := livenessName(path)
	if name == "" {
		return net.ErrClosed
	}
	t := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", name)
	}}
	return admin.Client{Address: "http://weir", HTTP: &http.Client{Transport: t}}.Healthz(ctx)
}
