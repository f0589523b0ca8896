package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy"
)

// A supervisor is told how weir fares: systemd, of a unit of Type=notify-reload.
// Where there is none, nothing is told to nobody.
type supervisor struct{ log zerolog.Logger }

func (v supervisor) ready(p *proxy.Proxy) {
	generation, _ := p.Serving()
	v.tell(daemon.SdNotifyReady + "\nSTATUS=serving generation " + strconv.FormatInt(generation, 10))
}

// reloading is followed by ready, whatever came of it.
func (v supervisor) reloading() {
	v.tell(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec() + "\nSTATUS=reloading")
}

func (v supervisor) stopping() { v.tell(daemon.SdNotifyStopping + "\nSTATUS=draining") }

func (v supervisor) tell(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		v.log.Warn().Err(err).Msg("systemd does not listen")
	}
}

// watchdog says that weir lives, twice in the time in which systemd wants to
// hear so, until ctx is done. alive asks what it is to live.
func (v supervisor) watchdog(ctx context.Context, alive func() bool) {
	within, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		v.log.Warn().Err(err).Msg("no watchdog")
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
