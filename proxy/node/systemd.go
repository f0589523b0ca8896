package node

import (
	"context"
	"strconv"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/admin"
)

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
	tick := time.NewTicker(within / 2)
	defer tick.Stop()
	for {
		if alive() {
			s.notify(daemon.SdNotifyWatchdog)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
