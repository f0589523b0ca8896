package dashboard

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
)

// maxForm is the maximum length of a form in bytes: the longest is a request to explain.
const maxForm = 1 << 20

type sessionKey struct{}

// sessionOf returns the session of an authenticated request.
func sessionOf(r *http.Request) session {
	s, _ := r.Context().Value(sessionKey{}).(session)
	return s
}

// protect returns a handler that requires a session, and rejects forged forms.
func (d *dashboard) protect(next http.HandlerFunc) http.HandlerFunc {
	return d.requireSession(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && !d.checkForm(w, r, sessionOf(r).id) {
			return
		}
		next(w, r)
	})
}

// requireSession returns a handler that requires a session. If no tokens are configured, it allows all
// requests that the admin handler allows: programs on this machine have the same rights as in the
// API. Forms must still be checked.
func (d *dashboard) requireSession(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s, found := d.findSession(w, r)
		if !found {
			d.sendToLogin(w, r)
			return
		}
		s.Address = r.RemoteAddr
		next(w, r.WithContext(admin.WithOperator(context.WithValue(r.Context(), sessionKey{}, s), s.Operator)))
	}
}

// findSession returns the session of r.
func (d *dashboard) findSession(w http.ResponseWriter, r *http.Request) (session, bool) {
	if d.Guarded() {
		id := cookie(r)
		s, found := d.sessions.find(id, time.Now())
		s.id = id
		return s, found
	}
	return session{Operator: admin.Operator{Name: admin.Local, Role: admin.Write}, id: withCookie(w, r)}, true
}

// withCookie returns the value of the session cookie of r, and sets one if there is none.
func withCookie(w http.ResponseWriter, r *http.Request) string {
	id := cookie(r)
	if id == "" {
		id = rand.Text()
		setCookie(w, r, id)
	}
	return id
}

// checkForm reports whether a form was issued to the browser that sends it. If not, it has sent the
// error response.
func (d *dashboard) checkForm(w http.ResponseWriter, r *http.Request, id string) bool {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		d.show(w, r, page{name: "problem", title: "Too long", status: http.StatusRequestEntityTooLarge, data: "the form cannot be read: " + err.Error()})
		return false
	}
	if !d.validFormToken(r.PostForm.Get("form"), id) {
		d.show(w, r, page{name: "problem", title: "Not accepted", status: http.StatusForbidden, data: forgedFormDetail})
		return false
	}
	return true
}

// forgedFormDetail is the response to a forged form.
const forgedFormDetail = "the form is not of this session, or weir was started anew since it was shown; open the page again and repeat what you did"

// validFormToken reports whether a form's token belongs to the browser with that cookie.
func (d *dashboard) validFormToken(token, id string) bool {
	return hmac.Equal([]byte(token), []byte(d.sessions.formToken(id)))
}

// sendToLogin redirects to the login page, which leads back to the page that was asked for, or that has sent
// the form. If only the live part of a page was requested, the whole page is redirected.
func (d *dashboard) sendToLogin(w http.ResponseWriter, r *http.Request) {
	live := r.Header.Get("HX-Request") != ""
	from := r.URL.RequestURI()
	switch {
	case live:
		from = r.Header.Get("HX-Current-URL")
	case r.Method == http.MethodPost:
		from = r.Referer()
	}
	at := "/dashboard/login"
	if then := pageOf(from); then != "/" {
		at += "?then=" + url.QueryEscape(then)
	}
	if live {
		w.Header().Set("HX-Redirect", at)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	http.Redirect(w, r, at, http.StatusSeeOther)
}

// pageOf returns path and query of an address if it is one of a page, and "/" otherwise. The host is left
// out: nothing leads to another site.
func pageOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Path != "/" && !strings.HasPrefix(u.Path, "/dashboard/") || strings.HasPrefix(u.Path, "/dashboard/log") {
		return "/"
	}
	return (&url.URL{Path: u.Path, RawQuery: u.RawQuery}).RequestURI()
}

// A loginView is the data of the login page.
type loginView struct {
	Then  string // the requested page
	Wrong bool   // the token was wrong
	Wait  bool   // the address has sent too many wrong tokens; this one was not compared
}

func (d *dashboard) loginForm(w http.ResponseWriter, r *http.Request) {
	if !d.Guarded() {
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	d.showLogin(w, r, withCookie(w, r), loginView{Then: r.URL.Query().Get("then")})
}

func (d *dashboard) showLogin(w http.ResponseWriter, r *http.Request, id string, v loginView) {
	status := http.StatusOK
	switch {
	case v.Wait:
		status = http.StatusTooManyRequests
	case v.Wrong:
		status = http.StatusUnauthorized
	}
	r = r.WithContext(context.WithValue(r.Context(), sessionKey{}, session{id: id}))
	d.show(w, r, page{name: "login", title: "Log in", status: status, data: v})
}

// login starts a session with a new id if the token is valid, so that an id planted before (session
// fixation) is useless.
func (d *dashboard) login(w http.ResponseWriter, r *http.Request) {
	id := cookie(r)
	if !d.checkForm(w, r, id) {
		return
	}
	then := r.PostForm.Get("then")
	a := d.Authenticate(r, strings.TrimSpace(r.PostForm.Get("token")))
	if a.Wait > 0 {
		a.SetRetryAfter(w.Header())
	}
	if !a.Known {
		d.showLogin(w, r, id, loginView{Then: then, Wrong: a.Wait == 0, Wait: a.Wait > 0})
		return
	}
	d.sessions.remove(id)
	setCookie(w, r, d.sessions.add(session{Operator: a.Operator, Login: true}, time.Now()))
	http.Redirect(w, r, pageOf(then), http.StatusSeeOther) // #nosec G710 -- pageOf leaves the host out
}

func (d *dashboard) logout(w http.ResponseWriter, r *http.Request) {
	id := cookie(r)
	if !d.checkForm(w, r, id) {
		return
	}
	d.sessions.remove(id)
	setCookie(w, r, "")
	http.Redirect(w, r, "/dashboard/login", http.StatusSeeOther)
}

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
}

// Write reports whether the operator may make changes.
func (s session) Write() bool { return s.Role == admin.Write }

// sessions are the sessions of this node.
type sessions struct {
	secret [32]byte // key of form tokens
	kept[session]
}

func newSessions() *sessions {
	s := &sessions{kept: kept[session]{ttl: sessionTTL, most: maxSessions}}
	rand.Read(s.secret[:])
	return s
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
