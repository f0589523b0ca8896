package proxy

import (
	"cmp"
	"errors"
	"slices"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
)

// errListed reports that the key of a request is denied by a list.
var errListed = errors.New("denied by a list")

// A listLookup is the lists of a route that look at one key.
type listLookup struct {
	key   *key.Spec
	lists []*config.List // those that deny first
}

// newListLookups puts together the lists that look at the same key, so that it is
// read once.
func newListLookups(lists []*config.List) []listLookup {
	var all []listLookup
	for _, l := range lists {
		i := slices.IndexFunc(all, func(s listLookup) bool { return s.key == l.Key })
		if i < 0 {
			i, all = len(all), append(all, listLookup{key: l.Key})
		}
		all[i].lists = append(all[i].lists, l)
	}
	for _, s := range all {
		slices.SortStableFunc(s.lists, func(a, b *config.List) int {
			return cmp.Compare(rank(a.Action), rank(b.Action))
		})
	}
	return all
}

func rank(a config.Action) int {
	if a == config.DenyListed {
		return 0
	}
	return 1
}

// checkLists looks the request up in lists of its route: errListed when one denies; when
// none does and one says bypass, no limit is asked. A request that does not carry the
// key of a list is dealt with as the key says: it is refused, or it is not on the
// list. The cost does not grow with the lists' lengths.
func (g *generation) checkLists(x *exchange, lookups []listLookup) error {
	if len(lookups) == 0 {
		return nil
	}
	if err := x.readQuery(); err != nil {
		return err
	}
	for _, s := range lookups {
		if _, err := g.key(x, s.key); err != nil {
			return err
		}
		for _, l := range s.lists {
			if !x.isOn(l) {
				continue
			}
			if l.Action == config.DenyListed {
				x.list = l
				return errListed
			}
			if x.list == nil {
				x.list = l
			}
		}
	}
	return nil
}

// isOn reports whether the key last read stands in l. An address lets through
// nobody but who has it; refused is the whole network that it counts under, for a
// client there has all its addresses at hand.
func (x *exchange) isOn(l *config.List) bool {
	if l.Action == config.Bypass {
		return l.Members.HasExactly(&x.extracted.value, x.client.addr)
	}
	return l.Members.Has(&x.extracted.value)
}

// bypasses reports whether no limit is asked about the request.
func (x *exchange) bypasses() bool {
	return x.list != nil && x.list.Action == config.Bypass || x.preflight()
}
