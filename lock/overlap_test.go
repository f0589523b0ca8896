package lock

import (
	"errors"
	"testing"
)

// An owner counts its holds of a thing, not for which of its locks they are.
func TestEntangled_IsRefusedUntilTheOtherIsUnlocked(t *testing.T) {
	w := newTestServer(t)
	l := w.locker()
	for name, pair := range map[string][2]*Lock{
		"groups":                {l.Group("orders", "a", "b"), l.Group("orders", "b")},
		"a group and a Multi":   {l.Group("orders", "a"), Multi(l.Group("orders", "a", "c"), l.Reentrant("x"))},
		"a Multi and a part":    {Multi(l.Reentrant("x"), l.Reentrant("y")), l.Reentrant("y")},
		"a writer and a Multi":  {l.ReadWrite("x").Write(), Multi(l.ReadWrite("x").Write(), l.Reentrant("y"))},
		"a Red and one of many": {Redlock(l.Reentrant("x"), l.Reentrant("y")), Multi(l.Fair("y"), l.Reentrant("z"))},
	} {
		for range 2 {
			h := locked(t, pair[0])
			if _, err := pair[1].Lock(ctxOf(t), WithOwner(h.Owner())); !errors.Is(err, ErrNotReentrant) {
				t.Errorf("%s: Lock = %v, want ErrNotReentrant", name, err)
			}
			unlocked(t, h)
			unlocked(t, locked(t, pair[1], WithOwner(h.Owner())))
			pair[0], pair[1] = pair[1], pair[0]
		}
	}
	h := locked(t, l.Group("orders", "a"))
	next := locked(t, l.Group("orders", "b"), WithOwner(h.Owner()))
	third := locked(t, l.Group("invoices", "a"), WithOwner(h.Owner()))
	for _, h := range []*Hold{h, next, third} {
		unlocked(t, h)
	}
	w.empty()
}
