package dashboard

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
)

// A configView is the data of the page with the configuration and its history.
type configView struct {
	Config  admin.Config
	Fault   fault
	Cluster bool // pushes are possible
	History []admin.Entry
	// Diff is the change of the selected generation; nil if none is selected.
	Diff         *admin.Diff
	Lines        []diffLine
	HistoryFault fault
	configFlash
	Other   string        // YAML in the form of a push
	Checked *admin.Pushed // what a push of it would do
	Own     bool          // this node has a log to replay
	status  int
}

// A configFlash is what a push or a rollback has led to. It is shown once.
type configFlash struct {
	Done      *admin.Pushed
	DoneFault fault
	Status    int // with a fault
}

// A diffLine is a line of a unified diff with its kind: added, removed, place or same.
type diffLine struct{ Kind, Text string }

func (d *dashboard) showConfig(r *http.Request) view {
	var v configView
	if kept, first, _ := d.pushes.show(r.URL.Query().Get("done"), sessionOf(r).Name, time.Now()); first {
		v.configFlash, v.status = kept, kept.Status
	}
	return d.configuration(r, v)
}

func (d *dashboard) configuration(r *http.Request, v configView) view {
	ctx := r.Context()
	var err error
	v.Config, err = d.Config(ctx)
	v.Fault = faultOf("the configuration cannot be read", err)
	v.Own = d.AccessLog != "" && d.Simulate != nil
	if v.Cluster = d.Cluster != nil; v.Cluster {
		history, err := d.Cluster.History(ctx)
		v.History, v.HistoryFault = history.History, faultOf("the history cannot be read", err)
		if n, err := strconv.ParseInt(r.URL.Query().Get("diff"), 10, 64); err == nil {
			diff, err := d.Cluster.Diff(ctx, n)
			v.HistoryFault = cmp.Or(v.HistoryFault, faultOf("what was changed cannot be read", err))
			if err == nil {
				v.Diff, v.Lines = &diff, diffLines(diff.Diff)
			}
		}
	}
	return view{name: "config", title: "Config", status: v.status, data: v}
}

func diffLines(diff string) (lines []diffLine) {
	for line := range strings.Lines(diff) {
		kind := "same"
		switch {
		case strings.HasPrefix(line, "+++"), strings.HasPrefix(line, "---"), strings.HasPrefix(line, "@@"), strings.HasPrefix(line, "diff "):
			kind = "place"
		case line[0] == '+':
			kind = "added"
		case line[0] == '-':
			kind = "removed"
		}
		lines = append(lines, diffLine{kind, strings.TrimRight(line, "\n")})
	}
	return lines
}
