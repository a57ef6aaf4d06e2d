//! Statements over many rows. They come in few sizes, so that each is prepared once and used again.

use std::fmt::Write as _;

use sqlx::any::{AnyArguments, AnyRow};
use sqlx::query::Query;
use sqlx::{Any, AnyConnection, AssertSqlSafe};

/// Rows in a statement, the largest first. The last is 1, so that any number can be made up.
const SIZES: [usize; 4] = [64, 16, 4, 1];

/// A statement before its values are bound.
pub(super) type Bound = Query<'static, Any, AnyArguments>;

/// A statement over many rows: `head row between row … tail`, with a `?` in `row` where a value goes.
pub(super) struct Shape {
    pub(super) head: &'static str,
    pub(super) row: &'static str,
    pub(super) between: &'static str,
    pub(super) tail: &'static str,
}

impl Shape {
    /// Executes the statement over all rows.
    pub(super) async fn execute<T>(
        &self,
        connection: &mut AnyConnection,
        rows: Vec<T>,
        bind: impl Fn(Bound, T) -> Bound,
    ) -> Result<(), sqlx::Error> {
        let mut rows = rows.into_iter();
        while let Some(query) = self.next(&mut rows, &bind) {
            query.execute(&mut *connection).await?;
        }
        Ok(())
    }

    /// Fetches what the statement finds for all rows.
    pub(super) async fn fetch<T>(
        &self,
        connection: &mut AnyConnection,
        rows: Vec<T>,
        bind: impl Fn(Bound, T) -> Bound,
    ) -> Result<Vec<AnyRow>, sqlx::Error> {
        let mut rows = rows.into_iter();
        let mut found = Vec::new();
        while let Some(query) = self.next(&mut rows, &bind) {
            found.extend(query.fetch_all(&mut *connection).await?);
        }
        Ok(found)
    }

    /// The statement over as many of the rows left as fit.
    fn next<T>(&self, rows: &mut std::vec::IntoIter<T>, bind: &impl Fn(Bound, T) -> Bound) -> Option<Bound> {
        let size = SIZES.into_iter().find(|size| *size <= rows.len())?;
        // Only our own constants are in the text; values are bound.
        let query = sqlx::query(AssertSqlSafe(self.sql(size)));
        Some(rows.take(size).fold(query, bind))
    }

    fn sql(&self, rows: usize) -> String {
        let mut sql = self.head.to_owned();
        let mut parameter = 0;
        for row in 0..rows {
            sql.push_str(if row == 0 { "" } else { self.between });
            for (index, piece) in self.row.split('?').enumerate() {
                if index > 0 {
                    parameter += 1;
                    // Writing into a String cannot fail.
                    let _ = write!(sql, "${parameter}");
                }
                sql.push_str(piece);
            }
        }
        sql.push_str(self.tail);
        sql
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_numbered_through_all_rows() {
        let shape = Shape { head: "INSERT INTO t VALUES ", row: "(?, ?)", between: ", ", tail: " END" };
        assert_eq!(shape.sql(3), "INSERT INTO t VALUES ($1, $2), ($3, $4), ($5, $6) END");
        assert_eq!(shape.sql(1), "INSERT INTO t VALUES ($1, $2) END");
    }
}
