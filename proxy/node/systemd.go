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

// systemd is told how weir fares (sd_notify), of a unit of Type=notify-reload.
// Where there is none, nothing is told to nobody.
type systemd struct{ log zerolog.Logger }

func (v systemd) ready(p *proxy.Proxy) {
	generation, _ := p.Serving()
	v.tell(daemon.SdNotifyReady + "\nSTATUS=serving generation " + strconv.FormatInt(generation, 10))
}

// reloading is followed by ready, whatever came of it.
func (v systemd) reloading() {
	v.tell(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec() + "\nSTATUS=reloading")
}

func (v systemd) stopping() { v.tell(daemon.SdNotifyStopping + "\nSTATUS=draining") }

func (v systemd) tell(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		v.log.Warn().Err(err).Msg("sd_notify failed")
	}
}

// alive reports whether the admin listener answers: what a health check asks.
func (n *Node) alive() bool {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	return admin.Client{Address: n.Address("admin")}.Healthz(ctx) == nil
}

// watchdog says that weir lives, twice in the time in which systemd wants to
// hear so, until ctx is done. alive asks what it is to live.
func (v systemd) watchdog(ctx context.Context, alive func() bool) {
	within, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		v.log.Warn().Err(err).Msg("watchdog off")
	}
	if within <= 0 {
		return
	}
	tick := time.NewTicker(within / 2)
	defer tick.Stop()
	for {
		if alive() {
			v.tell(daemon.SdNotifyWatchdog)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
