// Package playbooks attacks configurations: each folder has the configuration against one kind of
// fraud with codes by SMS, and a Day is a seeded program that sends a day of real users and of an
// attacker to running proxies, on a clock that the test controls. A [Result] says what got through,
// what it cost, and how many real users were refused.
//
// The tables of the reference are made by the tests of this package.
package playbooks
