package dashboard

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"strings"

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
	Done         *admin.Pushed // result of a rollback
	DoneFault    fault
}

// A diffLine is a line of a unified diff with its kind: added, removed, place or same.
type diffLine struct{ Kind, Text string }

func (d *dashboard) showConfig(r *http.Request) view {
	return d.configuration(r, configView{})
}

func (d *dashboard) configuration(r *http.Request, v configView) view {
	ctx := r.Context()
	var err error
	v.Config, err = d.Config(ctx)
	v.Fault = faultOf("the configuration cannot be read", err)
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
	return view{name: "config", title: "Config", data: v}
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

var errGeneration = errors.New("the generation to roll back to is missing")

// rollback rolls all nodes back to an earlier generation.
func (d *dashboard) rollback(r *http.Request) view {
	who := sessionOf(r)
	switch {
	case !who.Write():
		return denied("roll back")
	case d.Cluster == nil:
		return d.notFoundView(r)
	}
	var v configView
	n, err := strconv.ParseInt(r.PostForm.Get("generation"), 10, 64)
	if err != nil || n < 1 {
		err = errGeneration
	} else {
		var done admin.Pushed
		if done, err = d.Cluster.Rollback(r.Context(), admin.Rollback{Generation: n, Author: who.Name}); err == nil {
			v.Done = &done
		}
	}
	v.DoneFault = faultOf("nothing was changed", err)
	return d.configuration(r, v)
}
