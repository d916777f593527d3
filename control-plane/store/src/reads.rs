//! Reading outside of transactions: each statement by itself, and again when the database is away for a moment.

use sea_orm::{
    ConnectionTrait, DatabaseConnection, DbBackend, DbErr, ExecResult, QueryResult, Statement,
};

use crate::error::Failure;
use crate::pool::Suspicion;
use crate::store::Retries;

#[derive(Clone)]
pub(crate) struct Reads {
    connection: DatabaseConnection,
    suspicion: Suspicion,
}

impl Reads {
    pub(crate) fn new(connection: DatabaseConnection, suspicion: Suspicion) -> Self {
        Self {
            connection,
            suspicion,
        }
    }

    pub(crate) fn connection(&self) -> &DatabaseConnection {
        &self.connection
    }

    /// Whether a read that failed is to be made again.
    async fn again<T>(retries: &mut Retries, answer: &Result<T, DbErr>) -> bool {
        match answer {
            Ok(_) => false,
            Err(error) => retries.again(Failure::of(error)).await,
        }
    }
}

#[async_trait::async_trait]
impl ConnectionTrait for Reads {
    fn get_database_backend(&self) -> DbBackend {
        self.connection.get_database_backend()
    }

    /// Once: what is no read is not made again.
    async fn execute_raw(&self, statement: Statement) -> Result<ExecResult, DbErr> {
        self.connection.execute_raw(statement).await
    }

    async fn execute_unprepared(&self, sql: &str) -> Result<ExecResult, DbErr> {
        self.connection.execute_unprepared(sql).await
    }

    async fn query_one_raw(&self, statement: Statement) -> Result<Option<QueryResult>, DbErr> {
        let mut retries = Retries::new(self.suspicion.clone());
        loop {
            let answer = self.connection.query_one_raw(statement.clone()).await;
            if !Self::again(&mut retries, &answer).await {
                return answer;
            }
        }
    }

    async fn query_all_raw(&self, statement: Statement) -> Result<Vec<QueryResult>, DbErr> {
        let mut retries = Retries::new(self.suspicion.clone());
        loop {
            let answer = self.connection.query_all_raw(statement.clone()).await;
            if !Self::again(&mut retries, &answer).await {
                return answer;
            }
        }
    }
}
