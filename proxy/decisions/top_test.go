package decisions

import (
	"fmt"
	"testing"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/view"
)

// plainNames names keys as they are.
type plainNames struct{}

// KeyHash implements Names.
func (plainNames) KeyHash(k limiter.Key) string { return k.String() }

// KeyID implements Names.
func (plainNames) KeyID(k limiter.Key) string { return k.String() }

// HidePersonal implements Names.
func (plainNames) HidePersonal(path string) string { return path }

// Among many keys that send a little, those that send much are listed alone, with a count that tells
// something; the others are below the floor.
func TestMergeTops_LeavesOutNoise(t *testing.T) {
	o, by := NewObserver(1), &key.Spec{Name: "phone"}
	c := o.Counter("sms.phone", by)
	o.KeepOnly([]*Counter{c})
	const minutes, keys, busy = 6, 3000, 200
	loud := limiter.KeyOf("phone", "loud")
	count := func(minute int, k limiter.Key) {
		fill := func(l *Label) { l.Reset(); l.AddPart("x", 0) }
		c.Count(0, int64(minute), k, fill)
		c.CountRefused(0, int64(minute), k, fill)
	}
	for minute := range minutes {
		for n := range keys {
			count(minute, limiter.KeyOf("phone", fmt.Sprint(minute, n)))
			if n%(keys/busy) == 0 {
				count(minute, loud)
			}
		}
	}
	one := c.Top(minutes-1, Complete(view.TopQuery{N: 100}), Naming{Names: plainNames{}})
	if len(one.Refused.Keys) != 100 {
		t.Fatalf("%d keys on one node, want the noise among them", len(one.Refused.Keys))
	}
	for _, l := range []view.TopList{MergeTops(20, view.Top{Limits: []view.TopLimit{one}}).Limits[0].Refused, MergeTops(20, view.Top{Limits: []view.TopLimit{one}}).Limits[0].Requests} {
		if len(l.Keys) != 1 || l.Keys[0].ID != loud.String() || l.Keys[0].Count < minutes*busy || l.Keys[0].Count-l.Keys[0].Error > minutes*busy {
			t.Errorf("%+v; want only the key that sent %d", l.Keys, minutes*busy)
		}
		if l.Floor < one.Refused.Keys[1].Count || l.Total != minutes*(keys+busy) {
			t.Errorf("floor %d of %d; want that of what was left out, %d", l.Floor, l.Total, one.Refused.Keys[1].Count)
		}
	}
}

// What was refused most comes first, wherever it stands in the configuration.
func TestMergeTops_SortsLimitsByRefusals(t *testing.T) {
	limit := func(name string, requests, refused int64) view.TopLimit {
		return view.TopLimit{Route: "r", Limit: name, Requests: view.TopList{Total: requests}, Refused: view.TopList{Total: refused}}
	}
	a := view.Top{Limits: []view.TopLimit{limit("quiet", 1, 0), limit("unused", 0, 0), limit("busy", 50, 0), limit("bad", 9, 3)}}
	b := view.Top{Limits: []view.TopLimit{limit("worse", 8, 2), limit("unused", 0, 0), limit("worse", 8, 2)}}
	var got []string
	for _, l := range MergeTops(20, a, b).Limits {
		got = append(got, l.Limit)
	}
	if want := "[worse bad busy quiet unused]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}
