// Package key makes the keys that limits count under: it takes the texts that
// a request carries, brings different spellings of one value into one form,
// and hashes the result, so that no client's text reaches a store.
//
// # The rule
//
// A key, a cost, a list, a mark or a route is read only from what every common
// server reads in one way. Where two of them differ, the request is refused with
// 400 (ErrAmbiguous, ErrMismatch), or goes to the stricter route; it is never a
// guess. A limit then holds for what the upstream acts on, whatever framework that
// is written in. What a Spec says of keys that are missing or not valid does not
// change this: on_invalid: skip lets a text pass that no server takes for a phone
// number, and not one that some do.
//
// # Names
//
// A field counts under its exact name. A request that has another which some server
// takes for it is refused, whether or not the right one is there too: FoldHeader,
// Names. Field names in HTTP are one whatever their letter case.
//
//	sent                      is read as by
//	X_Phone, X.Phone: header  X-Phone    CGI, FastCGI, WSGI, Rack, PHP: all but letters and digits is "_"
//	user.id, user id, user[id user_id    PHP, in queries, forms and cookies
//	" phone"                  phone      PHP; with a blank behind, what trims names
//	phone[], phone[x]         phone      PHP, Rails, qs (Express): a list, or a map
//	[phone], phone], phone[]x phone      Rack, qs
//	phone NUL x               phone      what keeps names as C does; PHP
//	!phone                    phone      Spring's data binder
//	?phone, as in /a??phone   phone      PHP
//	Phone                     phone      ASP.NET, and databases behind others
//	p%68one: cookie           phone      PHP before 7.4.11, Rack
//	filter, filter[phone][]   filter[phone]  PHP, Rails, qs: the one replaces or hides the other
//
// # Values
//
//	sent                      one server reads     another reads             Weir
//	phone=1&phone=2           the first: Go, Java  the last: PHP, Rails      400
//	                          both: Express
//	a=1;phone=2               one: Go refuses it   two: old Python, Perl     400
//	% that is no escape       as it is             refuses, or drops it      400
//	digits beyond ASCII       dropped by \D: Java, as digits: Python, \d     400, in digits and
//	                          JavaScript, Go, PHP  with Unicode, int()       e164
//	letters, blanks, marks of dropped by \D        dropped, or no number:    dropped by digits; by
//	no width in a number                           phone libraries           e164 only where all agree
//	                                                                         that it is a number, else 400
//	+86 138... ext 7          the number and 7     the number: phone         400 in e164 (extensions:
//	                          as digits: \D        libraries                 keep counts the number)
//	bytes >= 0x80 in a header Latin-1: WSGI, Node, UTF-8: Go, PHP            400, but for digits and
//	                          Tomcat                                         e164, which drop them
//	... that are numbers in   superscript two      part of a letter          400
//	Latin-1, as of "\uff0b",
//	in a header or a form
//	tab in a header           kept                 a blank, or the end       400
//	no UTF-8                  replaced: Python     kept: Go, PHP; Latin-1,   400
//	                                               or escapes: Java, Node
//	NUL                       kept                 the end: C, databases     400
//	blanks at an end          kept                 dropped: Laravel, Django  400, but for trim
//	other control characters  kept                 dropped: Java's trim()    400
//	size=010                  10                   8: octal, in old readers  400 as a cost
//
// # Cookies
//
//	sid = 1, sid= 1, sid=1 ;  trimmed: Go, Node    "sid_", " 1": PHP         400
//	sid="1", sid="\061"       1: Python, Tomcat    with quotes: Node's, PHP  400
//	a="; sid=1; b="           one cookie: old      three: all others         400
//	                          Java, Python
//	a=2, sid=1                one                  two: RFC 2109             400
//	two Cookie fields         joined with "; "     joined with ","           400
//	s%3A1                     decoded: PHP, Express  as it is: Go, Django    decoded: one key for both
//	a%20b, %22a%22, %zz       decoded              as it is, or otherwise    400
//	a+b                       as it is             a blank: Rack, gin        400; a%2Bb is a+b
//	j:1, j%3A[1]              as it is             JSON: cookie-parser       400
//	=sid=1                    no cookie            sid                       400
//
// # Bodies
//
// Content-Type is there once, a body without a charset other than UTF-8 and without
// a coding. JSON has no name twice or in another case, nothing behind its end, no
// comments, at most 64 levels. A number 42 is the text "42"; what is no plain whole
// number, or beyond 2^53-1, is 400, because 42.0 is 42 to JavaScript and "42.0" to
// Python, 1e10 is "1.0E10" to Java, and JavaScript rounds; true is "1" to PHP, so that
// is 400 too. A form has no semicolons and no bad escapes, and the
// key's field not in the query. A form in parts is written in one grammar
// (multipart.go):
//
//	sent                              differs in
//	two boundaries, a quoted one      PHP takes the first word "boundary" in the field; others the last parameter
//	text before, or after the end     old readers go on, and find parts there
//	line feeds alone                  Go, PHP and busboy part there, others do not
//	blanks behind a boundary          RFC 2046 allows them, busboy does not
//	a line that begins like one       some compare no further than the boundary is long
//	name=phone, name="ph\one"         unquoted by some, refused by others
//	name="=?utf-8?B?cGhvbmU=?="       phone: Tomcat decodes RFC 2047
//	two names, name*=, name*0=        the first: PHP; the last; or the extended one: Python
//	fields in folded lines            joined, cut, or left out
//	Content-Transfer-Encoding         decoded by some of Java and Python
//	parts in a part                   read by few, and flat
//	phone as a file                   no field to most; a field to PHP if filename is written otherwise
//
// # Authorization
//
// It is a scheme, one blank, and credentials. Two spaces or a tab are skipped by
// some (regular expressions, split) and part of the token, or none, to others
// (substr); a token without a scheme is one to whoever only takes "Bearer " away;
// "Basic x, Bearer y" is y to Laravel. All these are 400 where a key is read from a
// token, and none of them is a request without one.
//
// # Query and form
//
// Rails' params, PHP's $_REQUEST, Flask's values, Go's FormValue and Java's
// getParameter know no difference between the query and a form in the body. A key
// from a form is therefore not in the query, with a form or without one; and a key
// or a cost from the query stands beside no form, whatever is in that, because
// uploads may be long and are nobody's key: the Content-Type tells. A Spec that is
// read at both compares them (must_equal), for which the body is read like that of
// any key. Other bodies, JSON for one, stand beside a query as they like.
//
// Where an upstream reads another place than the key altogether, set_header tells it
// what was counted.
//
// A Spec never changes once compiled and is safe for concurrent use, as are
// Phone, Tokens, List and Names. A Value belongs to one request.
package key
