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
	// sessionTTL is the lifetime of a session, and maxSessions the maximum number of sessions; a
	// new one ends the oldest.
	sessionTTL  = 12 * time.Hour
	maxSessions = 1000
)

// A session is an authenticated browser.
type session struct {
	admin.Operator
	Login bool // started by a login, and can be ended by a logout
	id    string
	until time.Time
}

// Write reports whether the operator may make changes.
func (s session) Write() bool { return s.Role == admin.Write }

// sessions are the sessions of this node. They are kept in memory: a restart ends them.
type sessions struct {
	secret [32]byte // key of form tokens

	mu   sync.Mutex // guards what follows
	byID map[string]*list.Element
	all  *list.List // of session, oldest first
}

func newSessions() *sessions {
	s := &sessions{byID: map[string]*list.Element{}, all: list.New()}
	rand.Read(s.secret[:])
	return s
}

// begin starts a session with the properties of in.
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

// find returns the session with that id, unless it has expired.
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

// formToken returns the token of forms for a browser with that cookie (against cross-site request
// forgery). It is derived from the cookie, so that no state is needed for browsers that are not
// logged in.
func (s *sessions) formToken(id string) string {
	mac := hmac.New(sha256.New, s.secret[:])
	mac.Write([]byte(id))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// cookieName returns the name of the session cookie. It contains the port, because browsers send
// cookies to all ports of a host and several weirs may run on one. Over TLS it has the prefix
// __Host-, with which browsers guarantee that only this host has set it.
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

// cookie returns the value of the session cookie of r.
func cookie(r *http.Request) string {
	c, err := r.Cookie(cookieName(r))
	if err != nil {
		return ""
	}
	return c.Value
}

// setCookie sets a cookie with the lifetime of a session; an empty value deletes it.
func setCookie(w http.ResponseWriter, r *http.Request, value string) {
	age := int(sessionTTL / time.Second)
	if value == "" {
		age = -1
	}
	http.SetCookie(w, &http.Cookie{ // #nosec G124 -- without TLS a browser would not store a secure cookie
		Name: cookieName(r), Value: value, Path: "/", MaxAge: age,
		HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode,
	})
}
