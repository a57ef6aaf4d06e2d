//! The wire: ARM's JSON, paths, errors, etags and paging for fleets.
