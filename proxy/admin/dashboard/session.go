package dashboard

import (
	"container/list"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
)

const (
	// sessionTTL is how long one is logged in, and maxSessions how many are at a
	// time; one more ends the oldest.
	sessionTTL  = 12 * time.Hour
	maxSessions = 1000
)

// A session is one browser that is let in.
type session struct {
	admin.Operator
	Login bool // it was let in by a token, and can leave
	id    string
	until time.Time
}

// Write reports whether it may change something.
func (s session) Write() bool { return s.Role == admin.Write }

// sessions are those who logged in with this node. They are kept in memory: a restart
// ends them.
type sessions struct {
	secret [32]byte // of which tokens of forms are made

	mu   sync.Mutex // guards what follows
	byID map[string]*list.Element
	all  *list.List // of session, the oldest first
}

func newSessions() *sessions {
	s := &sessions{byID: map[string]*list.Element{}, all: list.New()}
	rand.Read(s.secret[:])
	return s
}

// begin makes a session of in.
func (s *sessions) begin(in session, now time.Time) session {
	in.id, in.until = rand.Text(), now.Add(sessionTTL)
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := s.all.Front(); e != nil && (s.all.Len() >= maxSessions || !now.Before(e.Value.(session).until)); e = s.all.Front() {
		s.removeLocked(e)
	}
	s.byID[in.id] = s.all.PushBack(in)
	return in
}

// find is the session of that id, if it lasts.
func (s *sessions) find(id string, now time.Time) (session, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, found := s.byID[id]
	if !found {
		return session{}, false
	}
	if in := e.Value.(session); now.Before(in.until) {
		return in, true
	}
	s.removeLocked(e)
	return session{}, false
}

func (s *sessions) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, found := s.byID[id]; found {
		s.removeLocked(e)
	}
}

func (s *sessions) removeLocked(e *list.Element) {
	delete(s.byID, e.Value.(session).id)
	s.all.Remove(e)
}

// formToken is what each form of a browser with that cookie carries: no page that cannot
// read ours knows it. It is made of the cookie, so that nothing has to be kept of
// browsers that are not logged in.
func (s *sessions) formToken(id string) string {
	mac := hmac.New(sha256.New, s.secret[:])
	mac.Write([]byte(id))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// cookieName has the port in it, because browsers send cookies to all ports of a host
// and several weirs may run on one; and the prefix with which browsers see to it that
// nobody but this very host has set it over TLS.
func cookieName(r *http.Request) string {
	name := "weir-session"
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		name += "-" + port
	}
	if r.TLS != nil {
		name = "__Host-" + name
	}
	return name
}

// cookie is the value of the cookie that r carries.
func cookie(r *http.Request) string {
	c, err := r.Cookie(cookieName(r))
	if err != nil {
		return ""
	}
	return c.Value
}

// setCookie gives the browser a cookie that lives as long as the session; an empty
// value takes it away.
func setCookie(w http.ResponseWriter, r *http.Request, value string) {
	age := int(sessionTTL / time.Second)
	if value == "" {
		age = -1
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookieName(r), Value: value, Path: "/", MaxAge: age,
		HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode,
	})
}
