package http1

// hopByHop are the names that concern one connection only (RFC 9110 section
// 7.6.1), and with them those that say how a message is framed: whoever sends it
// on says that again.
const hopByHop uint64 = 1<<Connection | 1<<KeepAlive | 1<<ProxyConnection | 1<<TE | 1<<Trailer | 1<<TransferEncoding | 1<<Upgrade |
	1<<ProxyAuthenticate | 1<<ProxyAuthorization | 1<<HTTP2Settings | 1<<ContentLength

// forbiddenTrailers are the known names that mean nothing, or something dangerous, after
// a body: how to frame, route or judge a message, or who somebody is (RFC 9110
// section 6.5.1).
const forbiddenTrailers uint64 = hopByHop | 1<<Host | 1<<ContentType | 1<<ContentEncoding | 1<<ContentRange | 1<<Expect | 1<<Via | 1<<MaxForwards | 1<<Forwarded |
	1<<XForwardedFor | 1<<XForwardedHost | 1<<XForwardedProto | 1<<XRealIP | 1<<XRequestID | 1<<Date | 1<<WWWAuthenticate |
	1<<Authorization | 1<<Cookie | 1<<SetCookie | 1<<AltSvc | 1<<RateLimit | 1<<RateLimitPolicy | 1<<RetryAfter |
	1<<CacheControl | 1<<Age | 1<<Proxy

// StripHopByHop takes out the hop-by-hop fields: those that Connection names, on all its
// lines, and those that are known to be. It must come before the fields of the
// proxy itself are added, so that nobody can name those in Connection.
func (f *Fields) StripHopByHop() {
	if f.present&hopByHop == 0 {
		return
	}
	if f.present&(1<<Connection) != 0 {
		for i := range f.lines {
			if l := &f.lines[i]; l.id == Connection && !equalFoldLower(f.value(l), "keep-alive") {
				f.dropNamed(f.value(l))
			}
		}
	}
	f.dropSet(hopByHop)
}

// dropNamed takes out the fields that a line of Connection names.
func (f *Fields) dropNamed(list string) {
	for list != "" {
		var name string
		if name, list = token(list); name != "" && !equalFoldLower(name, "close") && !equalFoldLower(name, "keep-alive") {
			f.Drop(name)
		}
	}
}

// token is the first element of a list that is separated by commas, and the rest
// of it.
func token(list string) (first, rest string) {
	for i := range len(list) {
		if list[i] == ',' {
			return trim(list[:i]), list[i+1:]
		}
	}
	return trim(list), ""
}

// hasToken reports whether a line of the known name n has that element. small
// must be in lower case.
func (f *Fields) hasToken(n Name, small string) bool {
	if f.present&(1<<n) == 0 {
		return false
	}
	for i := range f.lines {
		l := &f.lines[i]
		if l.id != n || l.dropped {
			continue
		}
		for list := f.value(l); list != ""; {
			var element string
			if element, list = token(list); equalFoldLower(element, small) {
				return true
			}
		}
	}
	return false
}

// DropForbiddenTrailers takes out of a trailer section what must not stand in one.
func (f *Fields) DropForbiddenTrailers() { f.dropSet(forbiddenTrailers) }
